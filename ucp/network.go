package ucp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// network is the address of a worker, the transports that it opened because the program used the
// network, and those that the configuration excluded.
type network struct {
	addr     *wireup.Address // of the worker; replaced, never modified after it was packed
	packed   []byte
	mu       sync.Mutex // protects packed: the owner locks it to write, other goroutines to read
	offers   []offer    // opened in addition to those of the context
	excluded []offer    // by the configuration
}

// localAddress is the address of a worker at some time, also in the form that peers get.
type localAddress struct {
	addr   *wireup.Address
	packed []byte
}

func (w *Worker) own() localAddress { return localAddress{w.net.addr, w.net.packed} }

// offersAt returns the transports on devices with a local address that are not offered before the
// program uses the network.
func (c *Context) offersAt(local netip.Addr) (offers []offer, err error) {
	for _, d := range c.memory.Domains {
		opener := d.MD.Ext().Net
		if opener == nil {
			continue
		}
		found, err := opener.ResourcesAt(local)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			o := offer{Resource: r, domain: d, names: namesOf(&r, d.Attr.Component)}
			c.evaluate(&o)
			offers = append(offers, o)
		}
	}
	return offers, nil
}

// useNetwork opens the transports on the devices with the local address of a socket, if they wait
// for the program to use the network, and adds them to the address of the worker. It opens nothing
// for loopback and for the zero AddrPort of a unix socket. Existing EPs do not use the new
// transports.
func (w *Worker) useNetwork(local netip.AddrPort, listens bool) error {
	ip := local.Addr()
	if !ip.IsValid() || ip.IsLoopback() {
		return nil
	}
	offers, err := w.ctx.offersAt(ip)
	if err != nil {
		return err
	}
	for i := range offers {
		o := &offers[i]
		switch {
		case !o.selected:
			w.net.exclude(o)
		case !w.opened(&o.Resource):
			if listens {
				o.listener = local
			}
			if err := w.openLater(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// opened reports whether the worker has opened a transport.
func (w *Worker) opened(r *uct.Resource) bool {
	return slices.ContainsFunc(w.net.addr.Resources, func(x wireup.Resource) bool {
		return x.Transport == r.Transport && x.Device == r.Device
	})
}

// exclude records a transport that the configuration excludes.
func (n *network) exclude(o *offer) {
	if !slices.ContainsFunc(n.excluded, func(x offer) bool { return x.Resource == o.Resource }) {
		n.excluded = append(n.excluded, *o)
	}
}

// openLater opens a transport of a worker that is in use.
func (w *Worker) openLater(o *offer) error {
	if len(w.ifaces) == wireup.MaxResources {
		return fmt.Errorf("open %s/%s: %w: %d transports are open", o.Transport, o.Device, ucs.ErrTooLong, len(w.ifaces))
	}
	u, err := w.openOffer(o)
	if err != nil {
		return err
	}
	i := w.newIface(o, u)
	if err := w.engine.AddLater(&i.Iface, u); err != nil {
		return ucs.Join(err, u.Close())
	}
	addr := *w.net.addr // existing EPs and dials in progress use the old address
	addr.Resources = slices.Clone(addr.Resources)
	w.net.addr = &addr
	w.peers.SetLocal(w.net.addr)
	w.net.offers = append(w.net.offers, *o)
	if err := w.enterIface(o, i); err != nil {
		return err
	}
	return w.publish()
}

// publish packs the address of the worker for Address.
func (w *Worker) publish() error {
	packed, err := w.net.addr.Pack()
	if err != nil {
		return err
	}
	w.net.mu.Lock()
	w.net.packed = packed
	w.net.mu.Unlock()
	return nil
}

// reacher returns a function that reports whether an iface of this worker reaches one of the
// peer's, or why not.
func (w *Worker) reacher(addr *wireup.Address) selection.Reacher {
	return func(l, r int) (bool, string) {
		a := w.ifaces[l].addr
		if a == nil {
			return false, "it has no address"
		}
		remote := &addr.Resources[r]
		return a.Reachable(remote.DeviceAddr, remote.IfaceAddr)
	}
}
