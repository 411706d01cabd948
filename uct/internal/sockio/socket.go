package sockio

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Backlog is the length of the accept queue of a listener. The kernel limits it to
// net.core.somaxconn.
const Backlog = 1024

// Options are the options of a TCP socket. All sockets have TCP_NODELAY and SO_KEEPALIVE.
type Options struct {
	// KeepIdle is the time without data after which the kernel probes the peer, and KeepInterval the time between probes.
	// UserTimeout is approximately the time after which an idle connection fails. All are rounded up to seconds.
	// KeepInterval must not be 0.
	KeepIdle, KeepInterval, UserTimeout time.Duration
	// SndBuf and RcvBuf are the sizes of the buffers in bytes. 0: the kernel chooses.
	SndBuf, RcvBuf int
	// Congestion is the name of the congestion control algorithm; empty for that of the system.
	Congestion string
}

// NewSocket makes a nonblocking TCP socket of the address family of ip. The caller owns the descriptor.
func NewSocket(ip netip.Addr, o *Options) (fd int, err error) {
	fd, err = unix.Socket(family(ip), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = o.Set(fd); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Set sets the options of a socket. Accepted sockets inherit them from the listener.
func (o *Options) Set(fd int) error {
	type option struct{ level, name, value int }
	options := []option{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(o.KeepIdle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(o.KeepInterval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, o.probes()},
	}
	for _, buf := range []option{{unix.SOL_SOCKET, unix.SO_SNDBUF, o.SndBuf}, {unix.SOL_SOCKET, unix.SO_RCVBUF, o.RcvBuf}} {
		if buf.value != 0 {
			options = append(options, buf)
		}
	}
	for _, opt := range options {
		if err := unix.SetsockoptInt(fd, opt.level, opt.name, opt.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if o.Congestion == "" {
		return nil
	}
	return os.NewSyscallError("setsockopt TCP_CONGESTION "+o.Congestion,
		unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion))
}

// probes returns the number of unanswered keepalive probes after which an idle connection fails. It
// approximates UserTimeout.
func (o *Options) probes() int {
	const most = 127 // MAX_TCP_KEEPCNT
	return min(max(seconds(o.UserTimeout-o.KeepIdle)/seconds(o.KeepInterval), 1), most)
}

// seconds rounds up to whole seconds, the unit of the kernel's keepalive options.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Listen binds the socket to an address and makes it a listener. Port 0 means that the kernel chooses. It returns the address
// with the port.
func Listen(fd int, at netip.AddrPort) (netip.AddrPort, error) {
	if at.Port() != 0 { // connections of an earlier process may be in TIME_WAIT on this port
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return at, os.NewSyscallError("setsockopt SO_REUSEADDR", err)
		}
	}
	if err := unix.Bind(fd, Sockaddr(at)); err != nil {
		return at, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, Backlog); err != nil {
		return at, os.NewSyscallError("listen", err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return at, os.NewSyscallError("getsockname", err)
	}
	return AddrPort(local), nil
}

// Source returns the source address that the kernel would use for packets to ip. It connects a datagram socket, which sends
// nothing. Errors are those of connect, such as ENETUNREACH, or of socket.
func Source(ip netip.Addr) (netip.Addr, error) {
	fd, err := unix.Socket(family(ip), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	const anyPort = 9 // the discard port (RFC 863); no datagram is sent to it
	if err := unix.Connect(fd, Sockaddr(netip.AddrPortFrom(ip, anyPort))); err != nil {
		return netip.Addr{}, os.NewSyscallError("connect", err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("getsockname", err)
	}
	return AddrPort(local).Addr(), nil
}

func family(ip netip.Addr) int {
	if ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Sockaddr returns a as the kernel takes it.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// AddrPort returns the address of sa; the zero AddrPort if sa is neither IPv4 nor IPv6.
func AddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
