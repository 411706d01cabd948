package ptrace

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waitStep waits for any thread of the group pid, one of which has been told to
// execute one instruction while the others stand still. It is a raw call, keeping
// the P: handing that over and fetching it back would cost more than the step, which
// takes a few microseconds.
//
// It must not wait for that thread alone. When the process is killed, its first
// thread is not reported before all others have been waited for.
func waitStep(pid int) (tid int, st unix.WaitStatus, err error) {
	for {
		var status uint32
		// unsafe.Pointer rule 4: converted in the call's argument list.
		got, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4,
			uintptr(-pid), uintptr(unsafe.Pointer(&status)), unix.WALL, 0, 0, 0)
		if errno == 0 {
			return int(got), unix.WaitStatus(status), nil
		}
		if errno != unix.EINTR {
			return 0, 0, os.NewSyscallError("wait4", errno)
		}
	}
}
