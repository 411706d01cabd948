package ucplayer

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucs"
)

// Sleep implements layer.Sleeper.
func (c *Conn) Sleep(other int) (readable bool, err error) {
	fd, err := c.worker.FD()
	if err != nil {
		return false, err
	}
	switch err := c.worker.Arm(); err {
	case nil:
	case ucs.ErrBusy:
		return false, nil
	default:
		return false, err
	}
	c.watched = [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(other), Events: unix.POLLIN}}
	if _, err := unix.Poll(c.watched[:], int(layer.LookTime.Milliseconds())); err != nil && err != unix.EINTR {
		return false, os.NewSyscallError("poll", err)
	}
	return c.watched[1].Revents != 0, nil
}

// flushAsleep is Flush that sleeps without polling first.
func (o *op) flushAsleep() error {
	r, err := o.ep.Flush()
	if r == nil || err != nil {
		return err
	}
	for {
		if done, err := r.Test(); done {
			return err
		}
		if err := o.Poll(); err != nil {
			r.Release()
			return err
		}
	}
}
