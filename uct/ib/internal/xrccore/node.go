package xrccore

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// node is the iface as a member of a shared XRC domain. It implements rccore.Links: EPs are paths
// over initiators, one to each domain of peers, instead of RC QPs.
type node struct {
	it         *ifaceCore
	domain     *ib.Domain
	initiators map[rcwire.Domain]*initiator // connected initiators that have not failed
	all        table[initiator]
	recovering []*initiator // initiators with work: waiting, flushed or failed
	paths      []*path      // by number; nil: free
	next       int          // start of the search for a free number
	closing    bool         // the iface is closing: do not wait for offers
}

var _ rccore.Links = (*node)(nil)

func newNode(it *ifaceCore, d *ib.Domain) *node {
	return &node{it: it, domain: d, initiators: map[rcwire.Domain]*initiator{}, next: 1}
}

// AddrLen implements rccore.Links.
func (*node) AddrLen() int { return rcwire.NodeAddrLen }

// MaxCredits implements rccore.Links.
func (*node) MaxCredits() int { return rcwire.MaxNodeCredits }

// RecvQueue implements rccore.Links. Messages of all paths of the iface arrive in one XRC SRQ.
func (n *node) RecvQueue(a *verbs.SRQInitAttr, cq *verbs.CQ) {
	a.Type, a.XRCD, a.CQ = verbs.SRQTypeXRC, n.domain.XRCD, cq
}

// number allocates a number, from 1. It reuses released numbers last, so that messages in flight to
// an EP that does not exist any more do not reach another one.
func (n *node) number(p *path) error {
	for range rcwire.MaxNodeNumber {
		i := n.next
		n.next = i%rcwire.MaxNodeNumber + 1
		if i >= len(n.paths) {
			n.paths = append(n.paths, make([]*path, i+1-len(n.paths))...)
		}
		if n.paths[i] == nil {
			n.paths[i], p.number = p, uint16(i)
			return nil
		}
	}
	return n.it.opError("new ep", fmt.Errorf("%w: %d are open", uct.ErrNoMemory, rcwire.MaxNodeNumber))
}

// at returns the path with a number, or nil.
func (n *node) at(number uint16) *path {
	if int(number) >= len(n.paths) {
		return nil
	}
	return n.paths[number]
}

// errInitiator is the cause of the failure of paths after a failure of their initiator.
var errInitiator = errors.New("the initiator to the peer's domain has failed")

// errPeerLost is the cause of the failure if the device reports that the device of the peer does
// not exist any more.
var errPeerLost = errors.New("the peer's device is gone")

// HandleFault implements rccore.Links. If a target has rejected a work request, each path that uses the target
// replaces it, because the initiator waits for an offer. Any other fault of a target means that the
// device of the initiator does not exist any more.
func (n *node) HandleFault(qp *verbs.QP, st ucs.Status) (handled int) {
	for _, in := range n.all.all() {
		if in.qp == qp && (in.phase == phaseUp || in.phase == phaseFlushed) {
			in.fail(st)
			handled++
		}
	}
	for _, p := range n.paths {
		if p != nil && p.source == qp && p.e.Ready() {
			p.handleSourceFault(st)
			handled++
		}
	}
	return handled
}

// HandleCQError implements rccore.Links. It stops the receive queue, so that peers see a closed iface. Without that, a
// message with no slot for its completion would fail the target, which other ifaces also use.
func (n *node) HandleCQError() {
	_ = n.it.ReceiveQueue().Stop() // if a peer is in the middle of a message, Stop fails, and peers see a failed target
	for _, in := range n.all.all() {
		in.failAfterCQError()
	}
}

// HandleDeviceGone implements rccore.Links.
func (n *node) HandleDeviceGone(gid verbs.GID) (handled int) {
	for _, p := range n.paths {
		if p != nil && p.connected && p.dev.GID == gid && p.e.Ready() {
			p.handlePeerGone()
			handled++
		}
	}
	return handled
}

// work does the work of initiators that recover from failures.
func (n *node) work() (done int) {
	recovering := n.recovering
	n.recovering = nil
	for _, in := range recovering {
		if in.work() {
			done++
		} else {
			n.recovering = append(n.recovering, in)
		}
	}
	return done
}

// Filter implements Filter.
func (n *node) Filter(c *verbs.WC) bool {
	switch {
	case c.ID >= rccore.ExtensionID:
		return true
	case c.ID >= buffer.RecvID:
		return n.routeMessage(c)
	}
	in := n.all.at(uint32(c.ID >> 32))
	if in == nil || uint32(c.ID) != in.epoch {
		return false
	}
	in.handleCompletion(c)
	return true
}

// noPath is the QPN of completions of receives that are for no EP: no EP has this number.
const noPath = 0

// routeMessage sets the QPN of a received message to the number of its path, or to noPath if it arrived over
// another target than that of the path: another process sent it. It returns false for a message that
// arrived before Connect of its path, and stores it there.
func (n *node) routeMessage(c *verbs.WC) bool {
	from := c.QPN
	c.QPN = noPath
	if c.Status != verbs.WCSuccess || c.Flags&verbs.WCWithImm == 0 || c.Opcode == verbs.WCRecvRDMAWithImm {
		return true
	}
	imm := rcwire.NodeImm(c.Imm)
	p := n.at(imm.Number())
	if p == nil || !p.acceptsFrom(from) {
		return true
	}
	c.QPN, c.Imm = uint32(p.number), uint32(imm.Imm())
	if !p.connected || len(p.early) > 0 {
		p.early = append(p.early, *c)
		return false
	}
	return true
}
