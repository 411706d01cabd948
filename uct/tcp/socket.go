package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/uct/internal/sockio"
	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

// options returns the options of the sockets.
func (c *Config) options() *sockio.Options {
	return &sockio.Options{
		KeepIdle: c.KeepIdle, KeepInterval: c.KeepInterval, UserTimeout: c.UserTimeout,
		SndBuf: int(min(c.SndBuf, maxBuf)), RcvBuf: int(min(c.RcvBuf, maxBuf)), Congestion: c.Congestion,
	}
}

// loopbackCongestion is the default for loopback, which loses no packets; pacing (bbr) would cost
// most of the bandwidth there (experiment 0115 in docs/perf). Every kernel has it.
const loopbackCongestion = "reno"

// chooseCongestion sets the default of Congestion for a device. It falls back to that of the system
// if the process may not use the algorithm (net.ipv4.tcp_allowed_congestion_control).
func (c *Config) chooseCongestion(d *device) {
	if !d.loopback || c.Congestion != "" {
		return
	}
	ip := d.v4
	if !ip.IsValid() {
		ip = d.v6
	}
	c.Congestion = loopbackCongestion
	fd, err := sockio.NewSocket(ip, c.options())
	if err != nil {
		c.Congestion = ""
		return
	}
	_ = unix.Close(fd)
}

// listen makes a listening socket on the first free port of Config.Port.
func listen(ip netip.Addr, cfg *Config) (fd int, port uint16, err error) {
	for p := int(cfg.Port.First); p <= int(cfg.Port.last()); p++ {
		if fd, port, err = listenAt(netip.AddrPortFrom(ip, uint16(p)), cfg); !errors.Is(err, unix.EADDRINUSE) {
			return fd, port, err
		}
	}
	return -1, 0, fmt.Errorf("GUCX_TCP_PORT=%v: no port of %v is free: %w", cfg.Port, ip, err)
}

// listenAt makes a listening socket.
func listenAt(at netip.AddrPort, cfg *Config) (fd int, port uint16, err error) {
	fd, err = sockio.NewSocket(at.Addr(), cfg.options())
	if err == nil {
		if at, err = sockio.Listen(fd, at); err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return -1, 0, err
	}
	return fd, at.Port(), nil
}

// dial starts to connect along p. The socket becomes writable when the connect has succeeded or
// failed.
func dial(p path, cfg *Config) (fd int, err error) {
	fd, err = sockio.NewSocket(p.local, cfg.options())
	if err == nil {
		if err = connectAlong(fd, p); err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// connectAlong starts to connect. It returns an error of connect bare, because the caller adds the
// context.
func connectAlong(fd int, p path) error {
	if err := shareLocalPorts(fd); err != nil {
		return err
	}
	if err := unix.Bind(fd, sockio.Sockaddr(netip.AddrPortFrom(p.local, 0))); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(fd, sockio.Sockaddr(p.remote)); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		return err
	}
	return nil
}

// shareLocalPorts makes bind choose no port, so that connect chooses one, which connections to
// different peers can share.
func shareLocalPorts(fd int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
}

// connected returns the result of a connect.
func connected(fd int) error {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if v != 0 {
		return unix.Errno(v)
	}
	return nil
}

// newTunnels makes the group for connections with TLS.
func (it *iface) newTunnels(p *tlspolicy.Policy) *tunnel.Group {
	return &tunnel.Group{
		Policy:   p,
		Tune:     func(fd int) error { return errors.Join(it.cfg.options().Set(fd), shareLocalPorts(fd)) },
		Linger:   it.cfg.Linger,
		Silence:  it.cfg.UserTimeout,
		Refusals: it.cfg.MaxHandshakes,
		Explain:  it.requireTLS,
	}
}
