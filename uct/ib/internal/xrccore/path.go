package xrccore

import (
	"errors"
	"math/rand/v2"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// path is the link of an EP of a node: a share in the initiator to the peer's domain, and in the
// target that the peer's messages come over. Its address offers an initiator and a target of
// its own. When it is connected it gives the initiator up, if there is one to the domain,
// and the target, when the peer is known to come over another.
type path struct {
	n         *node
	e         *rccore.EP
	task      *task // of the EP
	number    uint16
	connected bool
	moved     bool // source is another one than was offered last
	cut       bool // the EP takes nothing more, and what is held back of it is not posted
	notified  bool // the peer knows that the EP has failed, or is gone
	via       *initiator
	source    *verbs.QP
	before    uint32          // QPN of the source before; what came over it may be in the completion queue
	from      uint32          // QPN of the peer's initiator
	own       rcwire.NodeAddr // what the address has of the link
	peer      rcwire.NodeAddr
	dev       ib.DeviceAddr
	early     []verbs.WC // what has come before Connect

	sourceDue bool   // the message with the number of the initiator must be sent
	offerDue  bool   // the offer of source, with psn, must be sent
	lost      uint64 // round in which the peer's device was gone; 0: it is not
	psn       uint32
	replaced  uint32 // QPN of the target that has failed, of which source takes the place
}

var (
	_ rccore.Link      = (*path)(nil)
	_ rccore.SendQueue = (*path)(nil)
)

const maxPSN = 1<<24 - 1

// NewLink implements rccore.Links.
func (n *node) NewLink() (rccore.Link, error) {
	p := &path{n: n}
	if err := n.number(p); err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open makes what the address offers.
func (p *path) open() (err error) {
	if p.source, err = p.n.newTarget(); err != nil {
		return err
	}
	if p.via, err = p.n.newInitiator(rand.Uint32() & maxPSN); err != nil {
		return err
	}
	p.via.users++
	p.own = rcwire.NodeAddr{Domain: p.n.domain.ID, SRQN: p.n.it.ReceiveQueue().Number(),
		Target: p.source.Number(), Number: p.number}
	p.own.QPN, p.own.PSN = p.via.qp.Number(), p.via.psn
	return nil
}

// newTarget makes one in INIT.
func (n *node) newTarget() (*verbs.QP, error) {
	t, err := n.domain.XRCD.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	if err != nil {
		return nil, n.it.opError("create target", err)
	}
	t.SetUserContext(n.it.Iface)
	if err := n.it.ToInit(t); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Number implements rccore.Link.
func (p *path) Number() uint32 { return uint32(p.number) }

// AppendAddr implements rccore.Link.
func (p *path) AppendAddr(b []byte, own rcwire.EPAddr) []byte {
	a := p.own
	a.MTU, a.Reads, a.SegLen, a.Credits = own.MTU, own.Reads, own.SegLen, own.Credits
	return a.Append(b)
}

// ParseAddr implements rccore.Link.
func (p *path) ParseAddr(b []byte) (rcwire.EPAddr, error) {
	peer, err := rcwire.ParseNodeAddr(b)
	p.peer = peer
	return peer.EPAddr, err
}

// Connect implements rccore.Link.
func (p *path) Connect(dev ib.DeviceAddr, peer rcwire.EPAddr) error {
	p.dev = dev
	if p.from == 0 {
		p.from = peer.QPN
	}
	if err := p.expect(dev, peer); err != nil {
		return err
	}
	if err := p.join(); err != nil {
		return err
	}
	p.connected = true
	return nil
}

// expect connects the target that was offered with the peer's initiator. A peer of the own domain
// has another target.
func (p *path) expect(dev ib.DeviceAddr, peer rcwire.EPAddr) error {
	switch {
	case p.moved:
		return nil
	case p.peer.Domain == p.n.domain.ID:
		return p.closeSource()
	}
	return p.n.it.ToRTR(p.source, dev, peer)
}

// closeSource closes the target that was offered, unless a Connect that failed later has.
func (p *path) closeSource() error {
	if p.source == nil {
		return nil
	}
	if err := p.source.Close(); err != nil {
		return err
	}
	p.source = nil
	return nil
}

// join takes the initiator to the peer's domain, or connects its own. One that is held back waits for the
// peers of other paths, who may not look for long.
func (p *path) join() error {
	if in := p.n.initiators[p.peer.Domain]; in != nil && in.phase == phaseUp {
		if err := p.via.leave(); err != nil {
			return err
		}
		in.users++
		p.via, p.sourceDue = in, !in.isLocal()
		return nil
	}
	p.via.to = p.peer.Domain
	if p.via.isLocal() {
		if err := p.via.connectLocal(p.via.psn); err != nil {
			return err
		}
	} else if err := p.via.connect(p, p.peer.Target, p.via.psn); err != nil {
		return err
	}
	p.n.initiators[p.via.to] = p.via
	return nil
}

// comesOver reports whether messages of the peer may come over a target of the domain. The first
// one over another than was offered, or than one that has failed, has the path refer to that. If
// it is gone by now its messages had been received before.
func (p *path) comesOver(qpn uint32) bool {
	if qpn == p.before || p.source != nil && qpn == p.source.Number() {
		return true
	}
	if p.moved && p.source.State() != verbs.QPStateErr {
		return false
	}
	t, err := p.n.domain.XRCD.OpenQP(qpn)
	if err != nil {
		p.before = qpn
		return true
	}
	t.SetUserContext(p.n.it.Iface)
	p.setSource(t)
	p.moved, p.offerDue = true, false
	return true
}

// sourceFailed handles a failure of the target over which the peer's messages arrive.
func (p *path) sourceFailed(st ucs.Status) {
	switch {
	case st != ucs.StatusIOError:
		p.peerGone()
	case !p.via.isLocal(): // else the peer's process connects it again
		p.replace()
	}
}

// peerGone handles the death of the peer's device.
func (p *path) peerGone() {
	p.lost = p.n.it.round
	p.n.it.later(p.task)
}

// endLost fails the EP whose peer's device is gone, when what had come from it before has been
// polled: the last of that may be that the EP there is closed.
func (p *path) endLost() {
	if p.n.it.round-p.lost <= p.n.it.allPolled {
		p.n.it.later(p.task)
		return
	}
	p.notified = true // the peer is gone
	p.e.Fail(ucs.StatusConnReset, errPeerLost)
}

// setSource refers to another target, and no longer to the one before.
func (p *path) setSource(t *verbs.QP) {
	if p.source != nil {
		p.before = p.source.Number()
		_ = p.source.Close() // what has come over it is complete
	}
	p.source = t
}

// replace makes a target for the peer's initiator instead of one that has failed.
func (p *path) replace() {
	t, err := p.n.newTarget()
	if err != nil {
		p.e.Fail(ucs.StatusConnReset, err)
		return
	}
	peer := p.peer.EPAddr
	p.psn = rand.Uint32() & maxPSN
	peer.QPN, peer.PSN = p.from, p.psn
	if err := p.n.it.ToRTR(t, p.dev, peer); err != nil {
		p.e.Fail(ucs.StatusConnReset, errors.Join(err, t.Close()))
		return
	}
	p.replaced = p.source.Number()
	p.setSource(t)
	p.moved, p.offerDue = false, true
	p.n.it.later(p.task)
}

// control takes a message of the peer's path; false if it is none.
func (p *path) control(m message) bool {
	switch m.kind {
	case kindSource:
		p.from = m.qpn
		return true
	case kindOffer:
		p.via.offered(offer{p: p, qpn: m.qpn, psn: m.psn}, m.lost)
		return true
	}
	return false
}

// work sends the messages that are due, and delivers what came before Connect.
func (p *path) work() (n int) {
	if p.lost != 0 && p.e.Ready() {
		p.endLost()
	}
	if p.sourceDue {
		m := message{kind: kindSource, qpn: p.via.qp.Number()}
		p.sourceDue = !p.sendOrRetry(&m)
	}
	if p.offerDue {
		m := message{kind: kindOffer, qpn: p.source.Number(), psn: p.psn, lost: p.replaced}
		p.offerDue = !p.sendOrRetry(&m)
	}
	if !p.connected {
		return n
	}
	return n + p.takeEarly()
}

// takeEarly hands over what has been kept: to the EP, or, when that is gone, its receives to the
// queue of all EPs.
func (p *path) takeEarly() int {
	early := p.early
	p.early = nil // a handler may close the EP
	for i := range early {
		p.n.it.NotSent(&early[i])
	}
	return len(early)
}

// sendOrRetry sends a message, or has Progress try again.
func (p *path) sendOrRetry(m *message) bool {
	if !p.e.Ready() {
		return true // the peer is gone
	}
	if p.e.SendControl(m.encode()) != nil {
		p.n.it.later(p.task)
		return false
	}
	return true
}

// failed handles the failure of the EP.
func (p *path) failed() {
	p.cut = true
	if p.via.phase == phaseUp {
		p.tellClosed()
	}
}

// tellClosed notifies the peer once that the EP has failed.
func (p *path) tellClosed() {
	if !p.notified {
		p.notified = true
		p.e.TellClosed()
	}
}

// reconnected is called when the initiator has another target. offered reports whether the peer of this path offered it.
func (p *path) reconnected(offered bool) {
	if p.cut {
		p.tellClosed()
		return
	}
	if p.sourceDue = !offered && !p.via.isLocal(); p.sourceDue {
		p.n.it.later(p.task)
	}
}

// PostSend implements rccore.SendQueue.
func (p *path) PostSend(wr []verbs.SendWR) (n int, err error) {
	w := &wr[0]
	w.SRQN = p.peer.SRQN
	if w.Opcode == verbs.OpSendWithImm {
		w.Imm = uint32(rcwire.Imm(w.Imm).To(p.peer.Number))
	}
	if err := p.via.post(p, w); err != nil {
		return 0, err
	}
	return 1, nil
}

// Reserve implements rccore.Link.
func (p *path) Reserve(n int) int {
	n = min(n, p.via.room)
	p.via.room -= n
	return n
}

// Return implements rccore.Link.
func (p *path) Return(n int) { p.via.room += n }

// Shared implements rccore.Link.
func (*path) Shared() bool { return true }

// ToERR implements rccore.Link. What the device has it gives back only with all that the initiator
// has, and it is not known what of that was executed: the other paths end too.
func (p *path) ToERR() error {
	p.cut = true
	if p.via.phase != phaseWaiting {
		p.via.end(ucs.StatusConnReset)
	}
	return nil
}

// Close implements rccore.Link. The core does not find the EP any more.
func (p *path) Close() error {
	var errs error
	if p.via != nil {
		errs = p.via.leave()
	}
	if p.source != nil {
		errs = errors.Join(errs, p.source.Close())
	}
	p.n.paths[p.number] = nil
	p.takeEarly()
	return errs
}
