package oob

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// look reports whether a socket is readable, by one system call that does not wait. It does not allocate.
type look struct {
	raw   syscall.RawConn
	fds   [1]unix.PollFd
	ready bool
	poll  func(fd uintptr)
}

func newLook(c net.Conn) *look {
	sock, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil
	}
	l := &look{raw: raw}
	l.poll = func(fd uintptr) {
		l.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		n, err := unix.Poll(l.fds[:], 0)
		l.ready = n != 0 && err != unix.EINTR
	}
	return l
}

// await is poll with a limit in milliseconds. Signals do not end it.
func (l *look) await(fd uintptr, limit time.Duration) {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(limit); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll(fds[:], int((left+time.Millisecond-1)/time.Millisecond))
		if err != unix.EINTR {
			l.ready = n != 0
			return
		}
	}
}

// Await waits until Ready, at most for the limit, and reports whether it is.
func (c *Conn) Await(limit time.Duration) bool {
	if c.look == nil || c.look.raw.Control(func(fd uintptr) { c.look.await(fd, limit) }) != nil {
		return true
	}
	return c.look.ready
}

// Control calls f with the descriptor of the connection. Close waits until f has returned. It returns ErrUnsupported
// for a connection that is no socket.
func (c *Conn) Control(f func(fd uintptr)) error {
	if c.look == nil {
		return errors.ErrUnsupported
	}
	return c.look.raw.Control(f)
}

// Ready reports, without waiting, whether Receive has something to return: a request has begun to arrive, or the
// connection has ended. For a connection that is no socket it always returns true.
func (c *Conn) Ready() bool {
	if c.look == nil || c.look.raw.Control(c.look.poll) != nil {
		return true
	}
	return c.look.ready
}

// Pipe returns two connected sockets, for two sides in one process.
func Pipe() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	a, errA := fileConn(fds[0])
	b, errB := fileConn(fds[1])
	if err := errors.Join(errA, errB); err != nil {
		return nil, nil, err
	}
	return a, b, nil
}

func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "oob")
	c, err := net.FileConn(f) // a duplicate
	return c, errors.Join(err, f.Close())
}
