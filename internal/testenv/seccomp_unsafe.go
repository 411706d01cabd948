package testenv

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Parts of a classic BPF program over the data of seccomp; uapi headers linux/bpf_common.h and linux/seccomp.h.
const (
	loadNumber   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // at offset 0: the number of the call
	loadFlags    = loadNumber                              // at offset mapFlags
	jumpEqual    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpSet      = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	returnAction = unix.BPF_RET | unix.BPF_K

	syscallAllow = 0x7fff0000

	// mapFlags is the offset of the low half of the fourth argument of a call, on little-endian machines: the flags of
	// mmap.
	mapFlags = 16 + 3*8
)

// Actions of ForbidSyscalls.
const (
	SyscallErrno = 0x00050000 // the call fails; the errno is in the lower 16 bits
	SyscallKill  = 0x80000000 // SIGSYS kills the process
)

// ForbidSyscalls installs a permanent seccomp filter with action for calls: in all threads of this process
// (SECCOMP_FILTER_FLAG_TSYNC), or in the calling thread, which must be locked.
func ForbidSyscalls(action uint32, flags uintptr, calls ...uint32) error {
	filter := []unix.SockFilter{{Code: loadNumber}}
	for i, n := range calls {
		filter = append(filter, unix.SockFilter{Code: jumpEqual, K: n, Jt: uint8(len(calls) - i)})
	}
	return installFilter(append(filter, unix.SockFilter{Code: returnAction, K: syscallAllow}, unix.SockFilter{Code: returnAction, K: action}), flags)
}

// ForbidSharedMappings is ForbidSyscalls for mmap with MAP_SHARED, which the runtime does not use.
// amd64 and arm64 only.
func ForbidSharedMappings(action uint32, flags uintptr) error {
	return installFilter([]unix.SockFilter{
		{Code: loadNumber},
		{Code: jumpEqual, K: unix.SYS_MMAP, Jf: 2},
		{Code: loadFlags, K: mapFlags},
		{Code: jumpSet, K: unix.MAP_SHARED, Jt: 1},
		{Code: returnAction, K: syscallAllow},
		{Code: returnAction, K: action},
	}, flags)
}

func installFilter(filter []unix.SockFilter, flags uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
