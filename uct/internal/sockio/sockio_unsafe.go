// Package sockio makes TCP sockets, accepts connections, and receives and sends on nonblocking sockets. Errors of the latter are
// error numbers, so that a call does not allocate.
package sockio

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// IO contains the system calls. Tests have another implementation than [Kernel], with faults.
type IO interface {
	// Send writes bytes of b and returns their number.
	Send(fd int, b []byte) (int, syscall.Errno)
	// Sendv is Send for the buffers of iov.
	Sendv(fd int, iov []unix.Iovec) (int, syscall.Errno)
	// Recv reads to b. 0 bytes without an error mean that the peer has closed the connection.
	Recv(fd int, b []byte) (int, syscall.Errno)
	// Recvv is Recv for the buffers of iov.
	Recvv(fd int, iov []unix.Iovec) (int, syscall.Errno)
}

// Kernel makes the calls.
type Kernel struct{}

// rawLimit is the maximum length in bytes for which a call does not release its P. Such a call
// copies for less than 10 µs, after which the scheduler wants to run others. A longer call releases
// the P, which costs about 50 ns.
const rawLimit = 128 << 10

// The pointers below are made in the argument list of the call (unsafe rule 4). The iovecs contain
// pointers to their buffers, which keep them alive.

// Send implements IO.
func (Kernel) Send(fd int, b []byte) (int, syscall.Errno) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	var n uintptr
	var errno syscall.Errno
	if len(b) <= rawLimit {
		n, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	}
	runtime.KeepAlive(b)
	return count(n, errno)
}

// Sendv implements IO.
func (Kernel) Sendv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	var m unix.Msghdr
	m.Iov = unsafe.SliceData(iov)
	m.SetIovlen(len(iov))
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_NOSIGNAL)
	runtime.KeepAlive(iov)
	return count(n, errno)
}

// Recv implements IO.
func (Kernel) Recv(fd int, b []byte) (int, syscall.Errno) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(len(b)), 0, 0, 0)
	runtime.KeepAlive(b)
	return count(n, errno)
}

// Recvv implements IO.
func (Kernel) Recvv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	runtime.KeepAlive(iov)
	return count(n, errno)
}

func count(n uintptr, errno syscall.Errno) (int, syscall.Errno) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Retry reports whether errno only means that the caller must try again later.
func Retry(errno syscall.Errno) bool { return errno == unix.EAGAIN || errno == unix.EINTR }

// SetIovec sets v to b, which must not be empty.
func SetIovec(v *unix.Iovec, b []byte) {
	v.Base = unsafe.SliceData(b)
	v.SetLen(len(b))
}
