package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

// backlog is the length of the accept queue of a listener. The kernel limits it to
// net.core.somaxconn.
const backlog = 1024

func family(ip netip.Addr) int {
	if ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// newSocket makes a nonblocking TCP socket with the configured options.
func newSocket(ip netip.Addr, cfg *Config) (fd int, err error) {
	fd, err = unix.Socket(family(ip), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = tune(fd, cfg); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// sockOpt is a socket option with an integer value.
type sockOpt struct {
	level, name, value int
}

// tune sets the socket options. Accepted sockets inherit them from the listener.
func tune(fd int, cfg *Config) error {
	opts := []sockOpt{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(cfg.KeepIdle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(cfg.KeepInterval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, cfg.probes()},
	}
	if cfg.SndBuf != 0 {
		opts = append(opts, sockOpt{unix.SOL_SOCKET, unix.SO_SNDBUF, int(min(cfg.SndBuf, maxBuf))})
	}
	if cfg.RcvBuf != 0 {
		opts = append(opts, sockOpt{unix.SOL_SOCKET, unix.SO_RCVBUF, int(min(cfg.RcvBuf, maxBuf))})
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if cfg.Congestion == "" {
		return nil
	}
	return os.NewSyscallError("setsockopt TCP_CONGESTION "+cfg.Congestion,
		unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cfg.Congestion))
}

// loopbackCongestion is the default for loopback, which loses no packets; pacing (bbr) would cost
// most of the bandwidth there (experiment 0115 in docs/perf). Every kernel has it.
const loopbackCongestion = "reno"

// probes returns the number of unanswered keepalive probes after which an idle connection fails. It
// approximates UserTimeout.
func (c *Config) probes() int {
	const most = 127 // MAX_TCP_KEEPCNT
	return min(max(seconds(c.UserTimeout-c.KeepIdle)/seconds(c.KeepInterval), 1), most)
}

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
	fd, err := newSocket(ip, c)
	if err != nil {
		c.Congestion = ""
		return
	}
	_ = unix.Close(fd)
}

// seconds rounds up to whole seconds, the unit of the kernel's keepalive options.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

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
	fd, err = newSocket(at.Addr(), cfg)
	if err == nil {
		if port, err = listenOn(fd, at); err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return -1, 0, err
	}
	return fd, port, nil
}

func listenOn(fd int, at netip.AddrPort) (port uint16, err error) {
	if at.Port() != 0 { // connections of an earlier process may be in TIME_WAIT on this port
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return 0, os.NewSyscallError("setsockopt SO_REUSEADDR", err)
		}
	}
	if err = unix.Bind(fd, sockaddr(at)); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	if err = unix.Listen(fd, backlog); err != nil {
		return 0, os.NewSyscallError("listen", err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return addrPort(local).Port(), nil
}

// dial starts to connect along p. The socket becomes writable when the connect has succeeded or
// failed.
func dial(p path, cfg *Config) (fd int, err error) {
	fd, err = newSocket(p.local, cfg)
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
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.local, 0))); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(fd, sockaddr(p.remote)); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
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
		Tune:     func(fd int) error { return errors.Join(tune(fd, &it.cfg), shareLocalPorts(fd)) },
		Linger:   it.cfg.Linger,
		Silence:  it.cfg.UserTimeout,
		Refusals: it.cfg.MaxHandshakes,
		Explain:  it.requireTLS,
	}
}
