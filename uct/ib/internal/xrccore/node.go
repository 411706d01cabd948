package xrccore

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// node is the iface as a member of an XRC domain that others share: it implements
// rccore.Links, so that EPs are paths over initiators, one to each domain of peers, and not RC QPs.
type node struct {
	it         *ifaceCore
	domain     *ib.Domain
	initiators map[rcwire.Domain]*initiator // those that are connected and have not ended
	all        table[initiator]
	recovering []*initiator // that have something to do: waiting, or ended
	paths      []*path      // by number; nil: free
	next       int          // where the search for a free number begins
	leaving    bool         // the iface closes: no offer is waited for
}

var _ rccore.Links = (*node)(nil)

func newNode(it *ifaceCore, d *ib.Domain) *node {
	return &node{it: it, domain: d, initiators: map[rcwire.Domain]*initiator{}, next: 1}
}

// AddrLen implements rccore.Links.
func (*node) AddrLen() int { return rcwire.NodeAddrLen }

// MaxCredits implements rccore.Links.
func (*node) MaxCredits() int { return rcwire.MaxNodeCredits }

// RecvQueue implements rccore.Links: messages of all paths to the iface arrive in one XRC SRQ.
func (n *node) RecvQueue(a *verbs.SRQInitAttr, cq *verbs.CQ) {
	a.Type, a.XRCD, a.CQ = verbs.SRQTypeXRC, n.domain.XRCD, cq
}

// number finds a free one, from 1. Those that were given back come last, so that what is on its way
// to an EP that is gone does not find another one.
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

// at is the path with a number, or nil.
func (n *node) at(number uint16) *path {
	if int(number) >= len(n.paths) {
		return nil
	}
	return n.paths[number]
}

// errInitiator is the cause where a failure of the initiator takes its paths along.
var errInitiator = errors.New("the initiator to the peer's domain has failed")

// errPeerLost is the cause where the device tells that the peer's is gone.
var errPeerLost = errors.New("the peer's device is gone")

// Fault implements rccore.Links. A target that has refused something is replaced by each path that
// it was for, since its initiator is held back. Any other fault of it says that the initiator's
// device is gone.
func (n *node) Fault(qp *verbs.QP, st ucs.Status) (handled int) {
	for _, in := range n.all.all() {
		if in.qp == qp && (in.phase == phaseUp || in.phase == phaseFlushed) {
			in.end(st)
			handled++
		}
	}
	for _, p := range n.paths {
		if p != nil && p.source == qp && p.e.Ready() {
			p.sourceFailed(st)
			handled++
		}
	}
	return handled
}

// Lost implements rccore.Links. Peers learn of it as of an iface that is closed, which takes no targets
// along, as a message without room for its completion does: those are for other ifaces too.
func (n *node) Lost() {
	_ = n.it.ReceiveQueue().Stop() // if a peer is in the middle of a message, they learn of it by that of the target
	for _, in := range n.all.all() {
		in.lost()
	}
}

// Gone implements rccore.Links.
func (n *node) Gone(gid verbs.GID) (handled int) {
	for _, p := range n.paths {
		if p != nil && p.connected && p.dev.GID == gid && p.e.Ready() {
			p.peerGone()
			handled++
		}
	}
	return handled
}

// work continues with initiators that recover from failures.
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
	case c.ID >= ib.RecvID:
		return n.arrived(c)
	}
	in := n.all.at(uint32(c.ID >> 32))
	if in == nil || uint32(c.ID) != in.epoch {
		return false
	}
	in.completed(c)
	return true
}

// noPath is the QPN of receives that are for no EP: the number of none.
const noPath = 0

// arrived finds the path that a message is for. What comes over another target than the
// path's is from somebody else. False for what is kept until the path is connected.
func (n *node) arrived(c *verbs.WC) bool {
	from := c.QPN
	c.QPN = noPath
	if c.Status != verbs.WCSuccess || c.Flags&verbs.WCWithImm == 0 || c.Opcode == verbs.WCRecvRDMAWithImm {
		return true
	}
	imm := rcwire.NodeImm(c.Imm)
	p := n.at(imm.Number())
	if p == nil || !p.comesOver(from) {
		return true
	}
	c.QPN, c.Imm = uint32(p.number), uint32(imm.Imm())
	if !p.connected || len(p.early) > 0 {
		p.early = append(p.early, *c)
		return false
	}
	return true
}
