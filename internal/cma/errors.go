package cma

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// Errors of transfers and probes. They are never wrapped, so that a failed
// call allocates nothing. Any other errno is returned as *os.SyscallError.
var (
	// ErrForbidden: the kernel does not permit this process to access the other's memory
	// (ptrace access rules, Yama, seccomp, user namespaces).
	ErrForbidden = errors.New("cross-memory attach forbidden by the kernel")
	// ErrGone: there is no process with that PID.
	ErrGone = errors.New("process is gone")
	// ErrBadRange: a part of the range is not mapped there (or here) with the necessary
	// rights. The bytes before that part may have been transferred.
	ErrBadRange = errors.New("memory range not accessible")
	// ErrNoMemory: the kernel had no memory for the call. It matches ucs.ErrNoMemory.
	ErrNoMemory = fmt.Errorf("cross-memory attach: %w", ucs.ErrNoMemory)
	// ErrUnsupported: the kernel has no cross-memory attach (CONFIG_CROSS_MEMORY_ATTACH).
	// It matches errors.ErrUnsupported.
	ErrUnsupported = fmt.Errorf("cross-memory attach: %w", errors.ErrUnsupported)
	// ErrOtherProcess: Probe has not found the expected number: the PID belongs to another process.
	ErrOtherProcess = errors.New("pid belongs to another process")
)

// fromErrno returns the error for the errno of a system call.
func fromErrno(call string, errno unix.Errno) error {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return ErrForbidden
	case unix.ESRCH:
		return ErrGone
	case unix.EFAULT:
		return ErrBadRange
	case unix.ENOMEM:
		return ErrNoMemory
	case unix.ENOSYS:
		return ErrUnsupported
	}
	return os.NewSyscallError(call, errno)
}
