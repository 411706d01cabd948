package sm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Parts of a classic BPF program over seccomp's data; uapi headers linux/bpf_common.h
// and linux/seccomp.h.
const (
	loadNumber   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // at offset 0: the call's number
	jumpEqual    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	returnAction = unix.BPF_RET | unix.BPF_K

	actionAllow = 0x7fff0000
	actionErrno = 0x00050000 // and the error
	actionKill  = 0x80000000 // the process, by SIGSYS
)

// forbid has the kernel answer some system calls with an action: those of all threads
// of this process, or of the calling one, which must be locked.
func forbid(action uint32, flags uintptr, calls ...uint32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	filter := []unix.SockFilter{{Code: loadNumber}}
	for i, n := range calls {
		filter = append(filter, unix.SockFilter{Code: jumpEqual, K: n, Jt: uint8(len(calls) - i)})
	}
	filter = append(filter, unix.SockFilter{Code: returnAction, K: actionAllow}, unix.SockFilter{Code: returnAction, K: action})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// The kernel reads prog and filter during the call (unsafe.Pointer rule 4).
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
