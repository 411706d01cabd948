package uverbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// MinKernel is the oldest kernel whose ABI has all methods that this package calls.
const MinKernel = "5.14"

// Error is the error of a call to the kernel. It unwraps to Errno and to the corresponding error of package ucs.
type Error struct {
	Dev   string // kernel name of the device; may be empty
	Op    string // operation, for example "create CQ"
	Errno unix.Errno
	// Advice explains the error number and what the user can do; may be empty.
	Advice string
	// Feature is the feature that the kernel lacks, and MinKernel the oldest version with it; may be empty.
	Feature, MinKernel string
}

// Error returns the operation, the cause and the advice.
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

// Unwrap returns the error number and the corresponding error of package ucs.
func (e *Error) Unwrap() []error {
	if class := classOf(e.Errno); class != nil {
		return []error{e.Errno, class}
	}
	return []error{e.Errno}
}

// classOf returns the error of package ucs that corresponds to an error number, or nil.
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

// lacks reports whether the error number means that the kernel does not support the method or attribute.
func lacks(errno unix.Errno) bool {
	return errno == unix.EPROTONOSUPPORT || errno == unix.EOPNOTSUPP || errno == unix.ENOTTY || errno == unix.ENOSYS
}

// newError returns the error of a failed call. err is the error that a File returned.
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

// adviceFor returns the Advice for an error, or "".
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

// lockLimit returns the soft limit RLIMIT_MEMLOCK as text.
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
