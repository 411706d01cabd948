package uverbs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Channel is a completion channel of the kernel.
type Channel struct {
	ctx *Context
	fd  int
}

// NewChannel creates a completion channel. The caller must close it.
func (c *Context) NewChannel() (*Channel, error) {
	var in CompChannel
	var out HandleReply
	if err := c.Invoke(CmdCompChannel, BytesOf(&in), BytesOf(&out)); err != nil {
		return nil, err
	}
	ch := &Channel{ctx: c, fd: int(out.Handle)}
	if err := unix.SetNonblock(ch.fd, true); err != nil {
		return nil, errors.Join(newError(c.Name, "fcntl", err), unix.Close(ch.fd))
	}
	return ch, nil
}

// FD returns the descriptor of the channel, which is readable while an event is pending. The channel owns it.
func (ch *Channel) FD() int { return ch.fd }

// TryRead reads one event and returns the user handle of its CQ. ok is false if no event is pending. TryRead does not
// block.
func (ch *Channel) TryRead() (handle uint64, ok bool) {
	for {
		n, err := unix.Read(ch.fd, BytesOf(&handle))
		if err == unix.EINTR {
			continue
		}
		return handle, err == nil && n == len(BytesOf(&handle))
	}
}

// Readable reports whether an event is pending.
func (ch *Channel) Readable() bool {
	fds := []unix.PollFd{{Fd: int32(ch.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 && err == nil
}

// Close closes the channel. The caller must have destroyed its CQs.
func (ch *Channel) Close() error { return os.NewSyscallError("close", unix.Close(ch.fd)) }
