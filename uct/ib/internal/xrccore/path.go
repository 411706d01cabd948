package xrccore

import (
	"errors"
	"math/rand/v2"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// path is the link of an EP of a node: a share of the initiator to the domain of the peer, and of
// the target over which messages of the peer arrive. Its address offers an initiator and a target
// of its own. After Connect it closes the initiator if another one to the domain exists, and closes
// the target when it finds that the peer uses another one.
type path struct {
	n                *node
	e                *rccore.EP
	task             *task // of the EP
	number           uint16
	connected        bool
	sourceMoved      bool // source is a target that the path has not offered
	inactive         bool // the EP has failed or is closed: the initiator drops its held-back work requests
	peerInformed     bool // no disconnect message is needed: the peer has one, or does not exist any more
	initiator        *initiator
	source           *verbs.QP
	prevSourceQPN    uint32          // QPN of the previous source: the completion queue may have messages from it
	peerInitiatorQPN uint32          // QPN of the peer's initiator
	localAddr        rcwire.NodeAddr // without the fields that the EP sets
	peerAddr         rcwire.NodeAddr
	dev              ibport.DeviceAddr
	early            []verbs.WC // completions of messages received before Connect

	sourceDue     bool   // the source message must be sent
	offerDue      bool   // the offer message must be sent
	peerGoneRound uint64 // round in which the device reported that the peer's device does not exist; 0: none
	offerPSN      uint32
	replaced      uint32 // QPN of the failed target that source replaces
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

// open creates the initiator and the target that the address offers.
func (p *path) open() (err error) {
	if p.source, err = p.n.newTarget(); err != nil {
		return err
	}
	if p.initiator, err = p.n.newInitiator(rand.Uint32() & maxPSN); err != nil {
		return err
	}
	p.initiator.users++
	p.localAddr = rcwire.NodeAddr{Domain: p.n.domain.ID, SRQN: p.n.it.ReceiveQueue().Number(),
		Target: p.source.Number(), Number: p.number}
	p.localAddr.QPN, p.localAddr.PSN = p.initiator.qp.Number(), p.initiator.psn
	return nil
}

// newTarget creates a target in INIT.
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
	a := p.localAddr
	a.MTU, a.MaxReads, a.SegLen, a.Credits = own.MTU, own.MaxReads, own.SegLen, own.Credits
	return a.Append(b)
}

// ParseAddr implements rccore.Link.
func (p *path) ParseAddr(b []byte) (rcwire.EPAddr, error) {
	peer, err := rcwire.ParseNodeAddr(b)
	p.peerAddr = peer
	return peer.EPAddr, err
}

// Connect implements rccore.Link.
func (p *path) Connect(dev ibport.DeviceAddr, peer rcwire.EPAddr) error {
	p.dev = dev
	if p.peerInitiatorQPN == 0 {
		p.peerInitiatorQPN = peer.QPN
	}
	if err := p.connectTarget(dev, peer); err != nil {
		return err
	}
	if err := p.join(); err != nil {
		return err
	}
	p.connected = true
	return nil
}

// connectTarget connects the offered target to the initiator of the peer. A peer in the own domain uses
// another target.
func (p *path) connectTarget(dev ibport.DeviceAddr, peer rcwire.EPAddr) error {
	switch {
	case p.sourceMoved:
		return nil
	case p.peerAddr.Domain == p.n.domain.ID:
		return p.closeSource()
	}
	return p.n.it.ToRTR(p.source, dev, peer)
}

// closeSource closes the offered target, unless an earlier Connect that failed has closed it.
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

// join selects the existing initiator to the domain of the peer, or connects its own. It does not
// use a waiting one, which waits for peers of other paths for an unknown time.
func (p *path) join() error {
	if in := p.n.initiators[p.peerAddr.Domain]; in != nil && in.phase == phaseUp {
		if err := p.initiator.removePath(); err != nil {
			return err
		}
		in.users++
		p.initiator, p.sourceDue = in, !in.isLocal()
		return nil
	}
	p.initiator.remoteDomain = p.peerAddr.Domain
	if p.initiator.isLocal() {
		if err := p.initiator.connectLocal(p.initiator.psn); err != nil {
			return err
		}
	} else if err := p.initiator.connect(p, p.peerAddr.Target, p.initiator.psn); err != nil {
		return err
	}
	p.n.initiators[p.initiator.remoteDomain] = p.initiator
	return nil
}

// acceptsFrom reports whether messages of the peer can arrive over a target. At the first message over a
// target that is neither the offered nor the previous one, the path opens that target. If it does not
// exist any more, the message was received before the target was closed.
func (p *path) acceptsFrom(qpn uint32) bool {
	if qpn == p.prevSourceQPN || p.source != nil && qpn == p.source.Number() {
		return true
	}
	if p.sourceMoved && p.source.State() != verbs.QPStateErr {
		return false
	}
	t, err := p.n.domain.XRCD.OpenQP(qpn)
	if err != nil {
		p.prevSourceQPN = qpn
		return true
	}
	t.SetUserContext(p.n.it.Iface)
	p.setSource(t)
	p.sourceMoved, p.offerDue = true, false
	return true
}

// handleSourceFault handles a failure of the target over which messages of the peer arrive.
func (p *path) handleSourceFault(st ucs.Status) {
	switch {
	case st != ucs.StatusIOError:
		p.handlePeerGone()
	case !p.initiator.isLocal(): // otherwise the process of the peer replaces it
		p.replace()
	}
}

// handlePeerGone makes failIfPeerGone fail the EP: the peer's device does not exist any more.
func (p *path) handlePeerGone() {
	p.peerGoneRound = p.n.it.round
	p.n.it.schedule(p.task)
}

// failIfPeerGone fails the EP after handlePeerGone, when all messages that arrived before are polled: the last one
// may be a disconnect.
func (p *path) failIfPeerGone() {
	if p.n.it.round-p.peerGoneRound <= p.n.it.allPolled {
		p.n.it.schedule(p.task)
		return
	}
	p.peerInformed = true // the peer is gone
	p.e.Fail(ucs.StatusConnReset, errPeerLost)
}

// setSource replaces the source and closes the previous one.
func (p *path) setSource(t *verbs.QP) {
	if p.source != nil {
		p.prevSourceQPN = p.source.Number()
		_ = p.source.Close() // all its messages have arrived
	}
	p.source = t
}

// replace creates a target for the initiator of the peer instead of a failed one.
func (p *path) replace() {
	t, err := p.n.newTarget()
	if err != nil {
		p.e.Fail(ucs.StatusConnReset, err)
		return
	}
	peer := p.peerAddr.EPAddr
	p.offerPSN = rand.Uint32() & maxPSN
	peer.QPN, peer.PSN = p.peerInitiatorQPN, p.offerPSN
	if err := p.n.it.ToRTR(t, p.dev, peer); err != nil {
		p.e.Fail(ucs.StatusConnReset, errors.Join(err, t.Close()))
		return
	}
	p.replaced = p.source.Number()
	p.setSource(t)
	p.sourceMoved, p.offerDue = false, true
	p.n.it.schedule(p.task)
}

// handleControl handles a message from the path of the peer. It returns false if the message is invalid.
func (p *path) handleControl(m message) bool {
	switch m.kind {
	case kindSource:
		p.peerInitiatorQPN = m.qpn
		return true
	case kindOffer:
		p.initiator.handleOffer(offer{p: p, qpn: m.qpn, psn: m.psn}, m.failedTarget)
		return true
	}
	return false
}

// work sends the due messages, and delivers messages received before Connect.
func (p *path) work() (n int) {
	if p.peerGoneRound != 0 && p.e.Ready() {
		p.failIfPeerGone()
	}
	if p.sourceDue {
		m := message{kind: kindSource, qpn: p.initiator.qp.Number()}
		p.sourceDue = !p.sendOrRetry(&m)
	}
	if p.offerDue {
		m := message{kind: kindOffer, qpn: p.source.Number(), psn: p.offerPSN, failedTarget: p.replaced}
		p.offerDue = !p.sendOrRetry(&m)
	}
	if !p.connected {
		return n
	}
	return n + p.deliverEarly()
}

// deliverEarly delivers the messages received before Connect. If the EP does not exist any more, their
// receive buffers are posted again.
func (p *path) deliverEarly() int {
	early := p.early
	p.early = nil // a handler may close the EP
	for i := range early {
		p.n.it.HandleOther(&early[i])
	}
	return len(early)
}

// sendOrRetry sends a message, or makes Progress try again.
func (p *path) sendOrRetry(m *message) bool {
	if !p.e.Ready() {
		return true // the peer is gone
	}
	if p.e.SendControl(m.encode()) != nil {
		p.n.it.schedule(p.task)
		return false
	}
	return true
}

// handleFailure is called when the EP fails.
func (p *path) handleFailure() {
	p.inactive = true
	if p.initiator.phase == phaseUp {
		p.sendDisconnect()
	}
}

// sendDisconnect sends the disconnect message, once.
func (p *path) sendDisconnect() {
	if !p.peerInformed {
		p.peerInformed = true
		p.e.SendDisconnect()
	}
}

// handleReconnect is called when the initiator is connected to another target. offered: the peer of this path
// offered that target.
func (p *path) handleReconnect(offered bool) {
	if p.inactive {
		p.sendDisconnect()
		return
	}
	if p.sourceDue = !offered && !p.initiator.isLocal(); p.sourceDue {
		p.n.it.schedule(p.task)
	}
}

// PostSend implements rccore.SendQueue.
func (p *path) PostSend(wr []verbs.SendWR) (n int, err error) {
	w := &wr[0]
	w.SRQN = p.peerAddr.SRQN
	if w.Opcode == verbs.OpSendWithImm {
		w.Imm = uint32(rcwire.Imm(w.Imm).WithNumber(p.peerAddr.Number))
	}
	if err := p.initiator.post(p, w); err != nil {
		return 0, err
	}
	return 1, nil
}

// Reserve implements rccore.Link.
func (p *path) Reserve(n int) int {
	n = min(n, p.initiator.room)
	p.initiator.room -= n
	return n
}

// Unreserve implements rccore.Link.
func (p *path) Unreserve(n int) { p.initiator.room += n }

// Shared implements rccore.Link.
func (*path) Shared() bool { return true }

// ToERR implements rccore.Link. The device can only flush all work requests of the initiator together, and
// it is unknown which of them were executed: the other paths fail too.
func (p *path) ToERR() error {
	p.inactive = true
	if p.initiator.phase != phaseWaiting {
		p.initiator.fail(ucs.StatusConnReset)
	}
	return nil
}

// Close implements rccore.Link. The core has removed the EP from its tables.
func (p *path) Close() error {
	var errs error
	if p.initiator != nil {
		errs = p.initiator.removePath()
	}
	if p.source != nil {
		errs = errors.Join(errs, p.source.Close())
	}
	p.n.paths[p.number] = nil
	p.deliverEarly()
	return errs
}
