package uverbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// MinKernel is the oldest kernel whose ABI has all that this package calls.
const MinKernel = "5.14"

// Error is a call of the kernel that has failed. It unwraps to Errno and to the error of package ucs that
// stands for it.
type Error struct {
	Dev   string // kernel name of the device; may be empty
	Op    string // what was called
	Errno unix.Errno
	// Advice is what the number means here and what to do; empty if there is nothing to add.
	Advice string
	// Feature is what the kernel lacks, with the oldest version that has it; empty if nothing is missing.
	Feature, MinKernel string
}

// Error returns operation, cause and advice.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %v", e.Op, e.Errno)
	if e.Dev != "" {
		s = e.Dev + ": " + s
	}
	if e.Feature != "" {
		s += fmt.Sprintf(": the kernel has no %s, which came with Linux %s", e.Feature, e.MinKernel)
	}
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	return s
}

// Unwrap returns the error number and its class.
func (e *Error) Unwrap() []error {
	if class := classOf(e.Errno); class != nil {
		return []error{e.Errno, class}
	}
	return []error{e.Errno}
}

// classOf is the error of package ucs for an error number; nil if none fits.
func classOf(errno unix.Errno) error {
	switch errno {
	case unix.ENOMEM, unix.ENOSPC, unix.EMFILE, unix.ENFILE:
		return ucs.ErrNoMemory
	case unix.EINVAL, unix.EFAULT, unix.ENOENT, unix.EBADF, unix.E2BIG, unix.ENODATA:
		return ucs.ErrInvalidParam
	case unix.EBUSY:
		return ucs.ErrBusy
	case unix.EIO, unix.ENODEV, unix.ENXIO:
		return ucs.ErrIO
	case unix.EPROTONOSUPPORT, unix.EOPNOTSUPP, unix.ENOTTY, unix.ENOSYS:
		return ucs.ErrUnsupported
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return ucs.ErrUnreachable
	case unix.ETIMEDOUT:
		return ucs.ErrTimedOut
	}
	return nil
}

// lacks are the error numbers with which the kernel refuses what it does not know.
func lacks(errno unix.Errno) bool {
	return errno == unix.EPROTONOSUPPORT || errno == unix.EOPNOTSUPP || errno == unix.ENOTTY || errno == unix.ENOSYS
}

// newError describes a failed call. err is what a File returned.
func newError(dev, op string, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("%s: %s: %w", dev, op, err)
	}
	e := &Error{Dev: dev, Op: op, Errno: errno, Advice: adviceFor(op, errno)}
	if lacks(errno) {
		e.Feature, e.MinKernel = op, MinKernel
	}
	return e
}

// adviceFor is what a user can do about an error.
func adviceFor(op string, errno unix.Errno) string {
	switch {
	case errno == unix.ENOMEM && op == CmdRegMR.String():
		return fmt.Sprintf("registered memory is locked, and this process may lock %s: raise it with ulimit -l, or LimitMEMLOCK= of its systemd unit", lockLimit())
	case errno == unix.ENODATA:
		return "the entry of the GID table is not in use"
	case errno == unix.EIO || errno == unix.ENODEV:
		return "the device was removed, or its driver has failed"
	case errno == unix.EMFILE:
		return "this process has too many open files: raise ulimit -n"
	}
	return ""
}

// lockLimit is the soft limit RLIMIT_MEMLOCK as text.
func lockLimit() string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return "an unknown amount"
	}
	if r.Cur == unix.RLIM_INFINITY {
		return "any amount (the machine is out of memory)"
	}
	return fmt.Sprintf("%d KiB", r.Cur>>10)
}
