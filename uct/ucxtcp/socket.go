package ucxtcp

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct/internal/sockio"
)

// options returns the options of the sockets.
func (c *Config) options() *sockio.Options {
	return &sockio.Options{
		KeepIdle: c.KeepIdle, KeepInterval: c.KeepInterval, UserTimeout: c.UserTimeout,
		SndBuf: int(min(c.SndBuf, maxBuf)), RcvBuf: int(min(c.RcvBuf, maxBuf)),
	}
}

// startListening makes the listening socket.
func (it *Iface) startListening() error {
	fd, err := sockio.NewSocket(it.dev.ip, it.cfg.options())
	if err != nil {
		return err
	}
	at, err := sockio.Listen(fd, netip.AddrPortFrom(it.dev.ip, uint16(it.cfg.Port)))
	l := &it.listener
	l.it = it
	if err == nil {
		l.slot, err = it.poll.Watch(fd, unix.EPOLLIN, l)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	l.fd, it.listen = fd, at
	return nil
}
