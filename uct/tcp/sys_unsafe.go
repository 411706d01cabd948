package tcp

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netIO is the system calls on connected sockets. There is one implementation
// besides the kernel: faults, in tests.
type netIO interface {
	send(fd int, b []byte) (int, syscall.Errno)
	sendv(fd int, iov []unix.Iovec) (int, syscall.Errno)
	recv(fd int, b []byte) (int, syscall.Errno)
	recvv(fd int, iov []unix.Iovec) (int, syscall.Errno)
}

// kernel makes the calls.
type kernel struct{}

// rawLimit is the length in bytes up to which a call keeps its processor: it
// copies for less than 10 µs, the time after which the scheduler wants others to
// run. Longer calls tell the scheduler, which costs about 50 ns.
const rawLimit = 128 << 10

// The pointers below are made in the argument list of the call (unsafe rule 4);
// buffers behind iovecs are held by the pointers in them.

func (kernel) send(fd int, b []byte) (int, syscall.Errno) {
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

func (kernel) sendv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	var m unix.Msghdr
	m.Iov = unsafe.SliceData(iov)
	m.SetIovlen(len(iov))
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_NOSIGNAL)
	runtime.KeepAlive(iov)
	return count(n, errno)
}

func (kernel) recv(fd int, b []byte) (int, syscall.Errno) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(len(b)), 0, 0, 0)
	runtime.KeepAlive(b)
	return count(n, errno)
}

func (kernel) recvv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
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

// retry reports whether errno only means: not now.
func retry(errno syscall.Errno) bool { return errno == unix.EAGAIN || errno == unix.EINTR }

// setIovec points v at b, which is not empty.
func setIovec(v *unix.Iovec, b []byte) {
	v.Base = unsafe.SliceData(b)
	v.SetLen(len(b))
}
