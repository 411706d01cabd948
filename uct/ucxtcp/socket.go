package ucxtcp

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is the length of the accept queue of a listener. The kernel limits it to
// net.core.somaxconn.
const backlog = 1024

// newSocket makes a nonblocking TCP socket with the configured options.
func newSocket(ip netip.Addr, cfg *Config) (fd int, err error) {
	family := unix.AF_INET6
	if ip.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = tune(fd, cfg); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// tune sets the socket options. Accepted sockets inherit them from the listener.
func tune(fd int, cfg *Config) error {
	type option struct{ level, name, value int }
	opts := []option{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(cfg.KeepIdle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(cfg.KeepInterval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, cfg.probes()},
	}
	if cfg.SndBuf != 0 {
		opts = append(opts, option{unix.SOL_SOCKET, unix.SO_SNDBUF, int(min(cfg.SndBuf, maxBuf))})
	}
	if cfg.RcvBuf != 0 {
		opts = append(opts, option{unix.SOL_SOCKET, unix.SO_RCVBUF, int(min(cfg.RcvBuf, maxBuf))})
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// probes returns the number of unanswered keepalive probes after which an idle connection fails. It
// approximates UserTimeout.
func (c *Config) probes() int {
	const most = 127 // MAX_TCP_KEEPCNT
	return min(max(seconds(c.UserTimeout-c.KeepIdle)/seconds(c.KeepInterval), 1), most)
}

// seconds rounds up to whole seconds, the unit of the kernel's keepalive options.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// startListening makes the listening socket.
func (it *Iface) startListening() error {
	fd, err := newSocket(it.dev.ip, &it.cfg)
	if err != nil {
		return err
	}
	at, err := listenOn(fd, netip.AddrPortFrom(it.dev.ip, uint16(it.cfg.Port)))
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

func listenOn(fd int, at netip.AddrPort) (netip.AddrPort, error) {
	if at.Port() != 0 { // connections of an earlier process may be in TIME_WAIT on this port
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return at, os.NewSyscallError("setsockopt SO_REUSEADDR", err)
		}
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return at, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return at, os.NewSyscallError("listen", err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return at, os.NewSyscallError("getsockname", err)
	}
	return addrPort(local), nil
}

// sourceTo returns the source address that the kernel would use for packets to ip. It sends
// nothing. The error is that of connect, such as ENETUNREACH.
func sourceTo(ip netip.Addr) (netip.Addr, error) {
	family := unix.AF_INET6
	if ip.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("socket", err)
	}
	const anyPort = 9
	var local unix.Sockaddr
	if err = unix.Connect(fd, sockaddr(netip.AddrPortFrom(ip, anyPort))); err == nil {
		local, err = unix.Getsockname(fd)
	}
	if err = errors.Join(os.NewSyscallError("connect", err), unix.Close(fd)); err != nil {
		return netip.Addr{}, err
	}
	return addrPort(local).Addr(), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// addrPort returns the address of sa; the zero AddrPort if sa is neither IPv4 nor IPv6.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
