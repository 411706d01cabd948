package ucp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// ports are the transports of all workers of a context whose peers may connect to the port of a Listener, of
// any of the workers. The zero value has none. Methods may be called by any goroutine, except where said.
type ports struct {
	mu    sync.Mutex
	known map[uint64]*sharedPort // by the id in a preface
}

// sharedPort is one of them, with the connections that wait for it.
type sharedPort struct {
	uct.PortSharer
	w       *Worker
	waiting []*bootstrap.DataConn
}

// add enters a transport of a worker.
func (p *ports) add(w *Worker, s uct.PortSharer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[uint64]*sharedPort{}
	}
	p.known[s.ID()] = &sharedPort{PortSharer: s, w: w}
}

// remove takes out the transports of a worker that closes, and hangs up on connections that wait for them.
func (p *ports) remove(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.known {
		if s.w == w {
			delete(p.known, id)
			for _, c := range s.waiting {
				c.Drop()
			}
		}
	}
}

// deliver has the worker of a transport take over a connection; false if there is no such transport.
func (p *ports) deliver(id uint64, c *bootstrap.DataConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[id]
	if s == nil {
		return false
	}
	if len(s.waiting) == cap(s.waiting) { // a worker that makes no progress has no more of them than the listeners have
		s.waiting = slices.DeleteFunc(s.waiting, (*bootstrap.DataConn).Over)
	}
	s.waiting = append(s.waiting, c)
	s.w.dialersWait()
	return true
}

// take returns the connections that wait for transports of a worker, each with its transport.
func (p *ports) take(w *Worker) (conns []*bootstrap.DataConn, of []uct.PortSharer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range w.ifaces {
		if i.port == nil {
			continue
		}
		if s := p.known[i.port.ID()]; s != nil {
			for _, c := range s.waiting {
				conns, of = append(conns, c), append(of, s.PortSharer)
			}
			s.waiting = nil
		}
	}
	return conns, of
}

// adoptAll passes the connections that wait for transports of a worker to them, and returns how many those
// are. Called by the owner of the worker.
func (p *ports) adoptAll(w *Worker) int {
	conns, of := p.take(w)
	for i, c := range conns {
		if fd, from, err := c.Take(); err == nil {
			of[i].Adopt(fd, from)
		}
	}
	return len(conns)
}

// ownAt is the address of the worker for peers that connect to a listener. One that has connected to it has
// reached an address of this host; for others that is the zero AddrPort.
func (w *Worker) ownAt(reached, listener netip.AddrPort) (localAddress, error) {
	addr := *w.addr
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

// AddressAt is Address for peers that connect to the port of a listener, of this worker or of another one of
// its context: those that cannot reach other ports of this host, such as dialers of that worker which are to
// use this one too. Like Listen, it opens the device of the listener. The transports that have a port (tcp)
// name that of the listener as long as GUCX_TCP_SHARE_PORT permits it, and peers need the address of this
// host: a dialer behind NAT has that of the worker that it has dialed only. Errors: ErrInvalidParam if the
// listener is of another context; ErrClosed.
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

// reachAt edits the address of a listener's worker, which this side has reached at an address.
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
