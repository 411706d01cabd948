package ucp

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// peer is what a worker knows of another one; EPs to the same worker share it.
type peer struct {
	packed string
	addr   *wireup.Address
	refs   int
	best   [wireup.Aux + 1]choice
	aux    []choice // all that can carry handshakes, best first
}

// choice is the best pair of resources for a purpose.
type choice struct {
	ok            bool
	local, remote int
}

// connSeq names a connection by the peer and the number it was made under.
type connSeq struct {
	uuid uint64
	seq  uint32
}

// remoteEP names a connection by the peer's own name for it.
type remoteEP struct{ uuid, ep uint64 }

// reachable reports whether any operation has a lane.
func (p *peer) reachable() bool {
	for purpose := range wireup.Aux {
		if p.best[purpose].ok {
			return true
		}
	}
	return false
}

// findPeer returns the peer of an address, which it checks.
func (w *Worker) findPeer(packed []byte) (*peer, error) {
	if p := w.peers[string(packed)]; p != nil {
		return p, nil
	}
	addr, err := wireup.UnpackAddress(packed)
	if err != nil {
		return nil, err
	}
	p := &peer{packed: string(packed), addr: addr}
	reach := w.reacher(addr)
	for purpose := range p.best {
		cands := wireup.Rank(wireup.Purpose(purpose), w.addr, addr, reach)
		if len(cands) > 0 && cands[0].Why == "" {
			p.best[purpose] = choice{true, cands[0].Local, cands[0].Remote}
		}
	}
	for _, cand := range wireup.Rank(wireup.Aux, w.addr, addr, reach) {
		if cand.Why == "" {
			p.aux = append(p.aux, choice{true, cand.Local, cand.Remote})
		}
	}
	w.peers[p.packed] = p
	return p, nil
}

// dropPeer forgets a peer that no EP uses.
func (w *Worker) dropPeer(p *peer) {
	p.refs--
	w.unusedPeer(p)
}

func (w *Worker) unusedPeer(p *peer) {
	if p.refs == 0 {
		delete(w.peers, p.packed)
	}
}

// reacher asks the ifaces whether they reach the peer's.
func (w *Worker) reacher(addr *wireup.Address) wireup.Reacher {
	return func(l, r int) (bool, string) {
		a, ok := w.ifaces[l].Iface.(uct.IfaceAddresser)
		if !ok {
			return false, "it has no address"
		}
		remote := &addr.Resources[r]
		return a.Reachable(remote.DeviceAddr, remote.IfaceAddr)
	}
}

func (w *Worker) explain(addr *wireup.Address) string {
	return w.explainChoice() + wireup.Explain(w.addr, addr, w.reacher(addr)) + w.explainEndpoints()
}

// explainEndpoints says how the worker shares devices, where that was asked for.
func (w *Worker) explainEndpoints() (text string) {
	category := w.ctx.cfg.IBEndpoints
	if category == uct.EndpointsAuto {
		return ""
	}
	for _, i := range w.ifaces {
		if i.domain.attr.Endpoints {
			text += fmt.Sprintf("endpoints of %s/%s: %v, memory domain %d of %d\n",
				i.attr.Resource.Transport, i.attr.Resource.Device, category, i.md, len(w.addr.MDs))
		}
	}
	return text
}

// Explain tells which transports the configuration selects, which lanes would be
// chosen to the worker with that address, and why not the others. ErrInvalidAddr.
func (w *Worker) Explain(addr []byte) (string, error) {
	a, err := wireup.UnpackAddress(addr)
	if err != nil {
		return "", err
	}
	return w.explain(a), nil
}

// Explain tells which transports the configuration selects, which lanes the EP uses
// or would use, and why not the others.
func (e *EP) Explain() string { return e.w.explain(e.peer.addr) }
