package tcp

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
)

// Peers may connect to a listener of the upper layer, at the port at which they have found the
// worker: docs/design/0013-one-port.md.

var _ uct.PortSharer = (*iface)(nil)

// ID implements uct.PortSharer.
func (it *iface) ID() uint64 { return it.addr.key.ID() }

// AddrAt implements uct.PortSharer.
func (it *iface) AddrAt(listener netip.AddrPort, reached bool) []byte {
	a := it.addr
	if a.listener = it.listenerAt(listener); !a.listener.IsValid() {
		return nil
	}
	a.reached = reached
	return a.append(nil)
}

// listenerAt returns the address at which peers of the device reach a listener; the zero AddrPort
// if they cannot. For a listener on ::, which also accepts IPv4, it is the IPv4 address of the
// device if there is one.
func (it *iface) listenerAt(listener netip.AddrPort) (at netip.AddrPort) {
	ip := listener.Addr().Unmap()
	switch {
	case !ip.IsValid():
		return at
	case it.dev.has(ip):
	case ip.IsUnspecified() && it.dev.v4.IsValid():
		ip = it.dev.v4
	case ip.IsUnspecified() && ip.Is6():
		ip = it.dev.v6
	default:
		return at
	}
	return netip.AddrPortFrom(ip, listener.Port())
}

// AddrReached implements uct.PortSharer.
func (it *iface) AddrReached(ifaceAddr []byte, at netip.AddrPort) []byte {
	a, err := parseIfaceAddr(ifaceAddr)
	if err != nil || !a.reached {
		return ifaceAddr
	}
	a.listener = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	return a.append(nil)
}

// Adopt implements uct.PortSharer.
func (it *iface) Adopt(fd int, from netip.Addr) {
	if err := it.cfg.options().Set(fd); err != nil || it.closed {
		_ = unix.Close(fd)
		return
	}
	it.receiveConn(fd, sourceOf(from))
}

// pathToListener returns the path to the listener of a peer. Its errors are those of pathTo. If
// this side has reached the listener at a loopback address, that address is valid, even if the peer
// is on another host: another process may forward it.
func (d *device) pathToListener(dev *deviceAddr, addr *ifaceAddr) (p path, err error) {
	to := addr.listener
	switch {
	case to.Addr().IsLoopback() != d.loopback:
		return p, unreachable("the peer listens on " + to.String() + ", which is not on " + d.name)
	case d.loopback && !addr.reached && dev.host != hostID():
		return p, unreachable("the peer listens on loopback, of another host or network namespace")
	}
	p, err = d.route(to)
	switch {
	case err == nil:
		p.listener = true
		return p, nil
	case outOfDescriptors(err):
		return p, err
	}
	return p, unreachable(err.Error())
}
