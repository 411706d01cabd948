package fakekernel

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/uverbs"
)

// pipe is a descriptor of the kernel from which a process reads records: a channel of events. The process closes its
// end, read; the kernel has the other one.
type pipe struct{ read, end int }

// newPipe makes a pipe that preserves the boundaries of records.
func newPipe() (*pipe, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &pipe{read: fds[0], end: fds[1]}, nil
}

// write queues a record. Without room, or a reader, the record is lost.
func (p *pipe) write(record []byte) {
	_ = unix.Sendto(p.end, record, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
}

// hungUp reports whether the process has closed its end.
func (p *pipe) hungUp() bool {
	fds := []unix.PollFd{{Fd: int32(p.end)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
}

func (p *pipe) close() error { return os.NewSyscallError("close", unix.Close(p.end)) }

// uint64Bytes is a number in the byte order of the host.
func uint64Bytes(v uint64) []byte { return append([]byte(nil), uverbs.BytesOf(&v)...) }
