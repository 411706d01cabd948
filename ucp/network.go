package ucp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// network is the address of a worker, and what it has opened, and has not, because the program asked for the network.
type network struct {
	addr     *wireup.Address // of the worker; not changed once packed, but replaced
	packed   []byte
	mu       sync.Mutex // held to write packed and by who is not the owner to read it
	offers   []offer    // open beside those of the context
	excluded []offer    // by the configuration
}

// localAddress is the address of a worker at some time, and as peers get it.
type localAddress struct {
	addr   *wireup.Address
	packed []byte
}

func (w *Worker) own() localAddress { return localAddress{w.net.addr, w.net.packed} }

// offersAt are the transports on devices with a local address that are offered only now.
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

// useNetwork opens the transports that wait for the program to ask for the network, on the devices
// with the local address of a socket, and adds them to the address of the worker. Loopback, and the
// zero AddrPort of a unix socket, ask for nothing. EPs that there are keep the transports that they had.
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

// opened reports that the worker has opened a transport.
func (w *Worker) opened(r *uct.Resource) bool {
	return slices.ContainsFunc(w.net.addr.Resources, func(x wireup.Resource) bool {
		return x.Transport == r.Transport && x.Device == r.Device
	})
}

// exclude notes a transport that the configuration excludes, once.
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
	addr := *w.net.addr // EPs that there are, and dials under way, go on with the old one
	addr.Resources = slices.Clone(addr.Resources)
	w.net.addr = &addr
	w.peers.SetLocal(w.net.addr)
	w.net.offers = append(w.net.offers, *o)
	if err := w.enterIface(o, i); err != nil {
		return err
	}
	return w.publish()
}

// publish packs the address of the worker.
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

// reacher asks the ifaces whether they reach the peer's.
func (w *Worker) reacher(addr *wireup.Address) wireup.Reacher {
	return func(l, r int) (bool, string) {
		a := w.ifaces[l].addr
		if a == nil {
			return false, "it has no address"
		}
		remote := &addr.Resources[r]
		return a.Reachable(remote.DeviceAddr, remote.IfaceAddr)
	}
}
