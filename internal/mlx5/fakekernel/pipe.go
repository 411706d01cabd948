package fakekernel

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/uverbs"
)

// pipe is a channel of events: the process reads records from descriptor read, which it closes; the kernel writes records
// to descriptor end.
type pipe struct{ read, end int }

// newPipe returns a pipe that preserves the boundaries of records.
func newPipe() (*pipe, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &pipe{read: fds[0], end: fds[1]}, nil
}

// write queues a record. It drops the record if the pipe is full or the process has closed it.
func (p *pipe) write(record []byte) {
	_ = unix.Sendto(p.end, record, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
}

// hungUp reports whether the process has closed its descriptor.
func (p *pipe) hungUp() bool {
	fds := []unix.PollFd{{Fd: int32(p.end)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
}

func (p *pipe) close() error { return os.NewSyscallError("close", unix.Close(p.end)) }

// uint64Bytes returns a number in the byte order of the host.
func uint64Bytes(v uint64) []byte { return append([]byte(nil), uverbs.BytesOf(&v)...) }
