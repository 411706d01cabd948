package tcp

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// path is the local and the remote address of a connection to a peer.
type path struct {
	local    netip.Addr
	remote   netip.AddrPort
	listener bool  // remote is a listener of the upper layer, which requires a preface
	other    *path // the path to try after this one has failed; nil if there is none
}

// isKnown reports whether p is set.
func (p *path) isKnown() bool { return p.remote.IsValid() }

// otherDevices is the remedy if a peer is not reachable over loopback, which is the default device.
const otherDevices = "; GUCX_TCP_DEVICES names other devices"

// pathTo returns the path from a device to a peer. The kernel's route to the peer must use this
// device. Errors: ErrUnreachable with the reason if there is no path, ErrNoMemory if the process
// has no descriptor left for the route lookup.
func (d *device) pathTo(dev *deviceAddr, addr *ifaceAddr) (p path, err error) {
	switch {
	case d.loopback && !dev.loopback:
		return p, unreachable("this side uses loopback, and the peer a network device" + otherDevices + " for this side")
	case dev.loopback && !d.loopback:
		return p, unreachable("this side uses a network device, and the peer loopback" + otherDevices + " for the other side")
	case d.loopback && dev.host != hostID():
		return p, unreachable("both sides use loopback, of two hosts or network namespaces" + otherDevices + ", on both")
	}
	why := "no address family in common"
	if addr.port4|addr.port6 == 0 {
		why = "the peer has no port of its own (SHARE_PORT=y there)"
	}
	for _, end := range []struct {
		local, remote netip.Addr
		port          uint16
	}{{d.v4, dev.v4, addr.port4}, {d.v6, dev.v6, addr.port6}} {
		if !end.local.IsValid() || !end.remote.IsValid() || end.port == 0 {
			continue
		}
		p, err = d.route(netip.AddrPortFrom(end.remote, end.port))
		if err == nil || errors.Is(err, uct.ErrNoMemory) {
			return p, err
		}
		why = err.Error()
	}
	return path{}, unreachable(why)
}

// route returns the path from a device to an address. The kernel's route must use this device.
// Errors: ErrNoMemory if the process has no descriptor left for the route lookup; otherwise the
// reason why there is no path.
func (d *device) route(to netip.AddrPort) (p path, err error) {
	source, err := sockio.Source(to.Addr())
	switch {
	case outOfDescriptors(err):
		return p, fmt.Errorf("%w: route to %v: %w", uct.ErrNoMemory, to.Addr(), err)
	case err != nil:
		return p, fmt.Errorf("no route to %v: %w", to.Addr(), err)
	case !d.has(source):
		return p, fmt.Errorf("the route to %v leaves from %v, which is not on %s", to.Addr(), source, d.name)
	}
	return path{local: source, remote: to}, nil
}

func unreachable(why string) error { return fmt.Errorf("%w: %s", uct.ErrUnreachable, why) }

// outOfDescriptors reports whether the process or the host cannot open more sockets.
func outOfDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}
