package ucp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// addPort lets peers of a transport connect to the port of any listener of any worker in the
// context.
func (w *Worker) addPort(i *iface) {
	if i.port != nil {
		w.ctx.ports.Add(i.port.ID(), w.dialersWait)
	}
}

// removePorts closes the connections that wait for the transports of a closing worker.
func (w *Worker) removePorts() {
	for _, i := range w.ifaces {
		if i.port != nil {
			w.ctx.ports.Remove(i.port.ID())
		}
	}
}

// adoptAll passes waiting connections to their transports, and returns their number.
func (w *Worker) adoptAll() (n int) {
	for _, i := range w.ifaces {
		if i.port == nil {
			continue
		}
		for _, c := range w.ctx.ports.Take(i.port.ID()) {
			n++
			if fd, from, err := c.Take(); err == nil {
				i.port.Adopt(fd, from)
			}
		}
	}
	return n
}

// ownAt returns the address of the worker for peers that connect to a listener. reached is the
// address of this host that a dialer has connected to; the zero AddrPort for other peers.
func (w *Worker) ownAt(reached, listener netip.AddrPort) (localAddress, error) {
	addr := *w.net.addr
	addr.Resources = slices.Clone(addr.Resources)
	changed := false
	for i, f := range w.ifaces {
		if f.port == nil {
			continue
		}
		b := f.port.AddrAt(reached, true)
		if b == nil {
			b = f.port.AddrAt(listener, false)
		}
		if b != nil {
			addr.Resources[i].IfaceAddr, changed = b, true
		}
	}
	if !changed {
		return w.own(), nil
	}
	packed, err := addr.Pack()
	return localAddress{&addr, packed}, err
}

// AddressAt is Address for peers that can only reach the port of a listener, for example dialers of another worker that
// must connect to this worker too. The listener is of this worker or of another worker of its context. Like Listen,
// AddressAt opens the device of the listener. In the result, transports with a port (tcp) have the port of the listener, if
// GUCX_TCP_SHARE_PORT permits that, and the address of this host. A dialer behind NAT cannot use that address: it only knows
// a valid address of the worker that it has dialed. Errors: ErrInvalidParam if the listener is of another context; ErrClosed.
func (w *Worker) AddressAt(l *Listener) ([]byte, error) {
	own, err := w.addressAt(l)
	if err != nil {
		return nil, &Error{Op: "address at " + l.Addr().String(), Err: err}
	}
	return slices.Clone(own.packed), nil
}

func (w *Worker) addressAt(l *Listener) (own localAddress, err error) {
	switch {
	case w.closed:
		return own, ucs.ErrClosed
	case l.w.ctx != w.ctx:
		return own, fmt.Errorf("%w: the listener is of another context", ucs.ErrInvalidParam)
	}
	if err = w.useNetwork(l.at, true); err != nil {
		return own, err
	}
	return w.ownAt(netip.AddrPort{}, l.at)
}

// reachAt modifies the address of a listener's worker, which this side has reached at an address.
func (w *Worker) reachAt(addr *wireup.Address, at netip.AddrPort) {
	if !at.IsValid() {
		return
	}
	for i := range addr.Resources {
		r := &addr.Resources[i]
		for _, f := range w.ifaces {
			if f.port != nil && f.attr.Resource.Transport == r.Transport {
				r.IfaceAddr = f.port.AddrReached(r.IfaceAddr, at)
				break
			}
		}
	}
}
