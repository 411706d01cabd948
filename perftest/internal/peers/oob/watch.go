package oob

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Watch calls ended, from a goroutine of its own, when the other side of c has closed the
// connection or its process has died. It does not read data; c may be read and written meanwhile.
// stop ends the watch and waits for its goroutine. For a connection that is no socket Watch does
// nothing.
func Watch(c net.Conn, ended func()) (stop func(), err error) {
	sock, ok := c.(syscall.Conn)
	if !ok {
		return func() {}, nil
	}
	f, err := duplicate(sock)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The poller of the runtime reports every arrival and the end.
		if raw.Read(hungUp) == nil {
			ended()
		}
	}()
	return func() {
		_ = f.Close() // of a duplicate; closing it ends the watch
		<-done
	}, nil
}

// duplicate returns a descriptor of its own, so that waiting on it does not block a reader of c.
func duplicate(c syscall.Conn) (f *os.File, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var dup int
	var failed error
	err = raw.Control(func(fd uintptr) { dup, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, os.NewSyscallError("fcntl", failed)); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dup), "oob"), nil
}

// hungUp reports whether the other side has closed the connection.
func hungUp(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
