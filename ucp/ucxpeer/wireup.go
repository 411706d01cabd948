package ucxpeer

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// peer is a worker of UCX. The n-th endpoint of the peer to this worker is connected to the n-th EP of this worker to the
// peer.
type peer struct {
	uuid uint64
	eps  map[uint16]*EP
	next uint16
	// ifaces are the addresses at which the peer listens, from the address that the program has; nil if it has none.
	ifaces []netip.AddrPort
	// hasAddr means that the program has the address of the peer. Then the record remains without EPs, because UCX never
	// restarts the numbers of its endpoints to a worker.
	hasAddr bool
	// replyEP is an EP for replies, with a separate connection to the peer; there is at most one. lastReplyConn is the
	// connection of the previous one, which was closed.
	replyEP       *EP
	lastReplyConn *ucxtcp.Conn
}

// maxReplyEPControl limits the queued messages of EPs that were created for replies.
const maxReplyEPControl = 64

// canAccept reports whether a peer may create one more EP that the program has not admitted. The connection of such an EP
// is exempt from the transport's limits.
func (w *Worker) canAccept(c *ucxtcp.Conn) bool {
	return w.peerEPs < w.cfg.MaxPeerEPs && w.peerEPsBySource[c.Network()] < w.cfg.MaxPeerEPsPerSource
}

// countPeerEP counts the EP as one that a peer created.
func (e *EP) countPeerEP(source netip.Prefix) {
	e.source = source
	e.w.peerEPs++
	e.w.peerEPsBySource[source]++
}

// Admit excludes an EP that a peer has created from the limits Config.MaxPeerEPs and MaxPeerEPsPerSource. A program should
// call it only for peers that it has authenticated, because UCX's protocol does not. NewEP does the same. Admit has no
// effect on other EPs.
func (e *EP) Admit() { e.uncountPeerEP() }

// uncountPeerEP reverts countPeerEP.
func (e *EP) uncountPeerEP() {
	if !e.source.IsValid() {
		return
	}
	w := e.w
	w.peerEPs--
	if w.peerEPsBySource[e.source]--; w.peerEPsBySource[e.source] == 0 {
		delete(w.peerEPsBySource, e.source)
	}
	e.source = netip.Prefix{}
}

// isFrom reports whether a connection is from the peer of the EP, as far as UCX's protocol identifies peers. Ids of EPs
// and operations in messages of other connections are ignored.
func (e *EP) isFrom(c *ucxtcp.Conn) bool {
	return c == e.lane.Conn() || c.Peer() == e.lane.Peer() || e.peer != nil && slices.Contains(e.peer.ifaces, c.Peer())
}

// epOf returns the EP with the id in a message; nil if there is no such EP to the peer that sent the message.
func (w *Worker) epOf(a arrival, id uint64) *EP {
	if e := w.eps.Find(id); e != nil && e.isFrom(a.conn) {
		return e
	}
	return nil
}

// requestOf returns the operation with the id in a message; nil if there is no such operation with the peer that sent the
// message.
func (w *Worker) requestOf(a arrival, id uint64) *Request {
	r := w.reqs.Find(id)
	if r == nil {
		return nil
	}
	e := r.ep
	if e == nil && r.msg != nil { // a receive
		e = r.msg.ep
	}
	if e == nil || !e.isFrom(a.conn) {
		return nil
	}
	return r
}

func (w *Worker) peerOf(uuid uint64) *peer {
	p := w.peers[uuid]
	if p == nil {
		p = &peer{uuid: uuid, eps: map[uint16]*EP{}}
		w.peers[uuid] = p
	}
	return p
}

// add adds an EP and returns its number.
func (p *peer) add(e *EP) uint16 {
	for p.eps[p.next] != nil || p.next == ucxwire.NoConnSN {
		p.next++
	}
	sn := p.next
	p.eps[sn] = e
	p.next++
	return sn
}

// unadopted returns the first EP that the peer created from one of the interfaces and that is not adopted; nil if there is
// none.
func (p *peer) unadopted(from []netip.AddrPort) *EP {
	var first *EP
	for _, e := range p.eps {
		if !e.adopted && slices.Contains(from, e.lane.Peer()) && (first == nil || e.sn < first.sn) {
			first = e
		}
	}
	return first
}

// dropPeer removes a peer without EPs, unless the program has its address.
func (w *Worker) dropPeer(p *peer) {
	if len(p.eps) == 0 && !p.hasAddr {
		delete(w.peers, p.uuid)
	}
}

// dropEP removes an EP from its peer.
func (w *Worker) dropEP(e *EP) {
	if p := e.peer; p != nil && p.eps[e.sn] == e {
		delete(p.eps, e.sn)
		w.dropPeer(p)
	}
}

// requestRemote requests the id of the peer's endpoint, once.
func (e *EP) requestRemote() {
	if e.wireupSent || e.peer == nil {
		return
	}
	e.wireupSent = true
	e.sendWireup(ucxwire.WireupRequest, e.w.address())
}

func (e *EP) sendWireup(t ucxwire.WireupType, a ucxwire.Address) {
	e.reply(ucxwire.IDWireup, ucxwire.AppendWireup(nil, &ucxwire.WireupMsg{
		Type: t, ErrMode: e.errMode, ConnSN: e.connSN(), SrcEP: e.id, DstEP: e.remote, Address: a}))
}

func (e *EP) connSN() uint16 {
	if e.sock != nil {
		return ucxwire.NoConnSN
	}
	return e.sn
}

// addressWithoutDevices returns the address of the worker without devices.
func (w *Worker) addressWithoutDevices() ucxwire.Address {
	return ucxwire.Address{Version: 1, Release: ucxwire.NoRelease, HasUUID: true, UUID: w.uuid}
}

func (w *Worker) handleWireup(a arrival) bool {
	m, err := ucxwire.DecodeWireup(a.data)
	if err != nil {
		return false
	}
	switch m.Type {
	case ucxwire.WireupRequest:
		return w.wireupRequest(a, &m)
	case ucxwire.WireupPreRequest:
		e := w.epOf(a, m.DstEP)
		if e == nil || e.sock == nil {
			return w.countLate()
		}
		if e.canReply() {
			e.sendWireup(ucxwire.WireupRequest, e.sockAddress())
		}
	case ucxwire.WireupReply, ucxwire.WireupReplyReconfig:
		e := w.epOf(a, m.DstEP)
		if e == nil {
			return w.countLate()
		}
		if m.SrcEP == 0 || !e.setRemote(m.SrcEP) {
			return false
		}
		if (e.sock != nil || m.Type == ucxwire.WireupReplyReconfig) && e.canReply() {
			e.sendWireup(ucxwire.WireupAck, w.addressWithoutDevices())
		}
		e.sendQueued()
	case ucxwire.WireupEPCheck:
		w.checkEP(a, &m)
	case ucxwire.WireupEPRemoved:
		if e := w.epOf(a, m.DstEP); e != nil && !e.onlyFlushes() {
			e.failLater(fmt.Errorf("%w: the peer has no such endpoint", ucs.ErrConnReset))
		}
	}
	return true
}

// setRemote sets the id of the peer's endpoint; false if the EP already has another one.
func (e *EP) setRemote(id uint64) bool {
	if e.remote != 0 {
		return e.remote == id
	}
	e.remote = id
	if e.hasChecks() {
		e.w.setAlarm()
	}
	return true
}

func (w *Worker) wireupRequest(a arrival, m *ucxwire.WireupMsg) bool {
	if m.SrcEP == 0 {
		return false
	}
	e := w.epOf(a, m.DstEP)
	if m.DstEP == 0 {
		e = w.epForRequest(a, m)
	}
	if e == nil {
		return w.countLate()
	}
	if e.errMode != m.ErrMode {
		e.failLater(fmt.Errorf("%w: the peer's endpoint has another error mode", ucs.ErrRejected))
		return true
	}
	if !e.setRemote(m.SrcEP) {
		return false
	}
	address := w.addressWithoutDevices()
	if e.sock != nil {
		address = e.sockAddress()
	}
	if e.canReply() {
		e.sendWireup(ucxwire.WireupReply, address)
	}
	return true
}

// epForRequest returns the EP for a request without a target: the EP with the same number, the EP that uses the connection
// of the request, or a new one.
func (w *Worker) epForRequest(a arrival, m *ucxwire.WireupMsg) *EP {
	if m.Address.UUID == w.uuid || m.ConnSN == ucxwire.NoConnSN {
		return nil
	}
	p := w.peerOf(m.Address.UUID)
	if e := p.eps[m.ConnSN]; e != nil {
		if !e.isFrom(a.conn) {
			return nil
		}
		return e
	}
	if e := w.lanes[a.conn.EP()]; e != nil && e.peer == p && e.remote == 0 {
		return e
	}
	defer w.dropPeer(p)
	if !w.canAccept(a.conn) {
		w.refuse(a, m)
		return nil
	}
	lane, err := w.tcp.Accept(a.conn)
	if err != nil && slices.Contains(p.ifaces, a.conn.Peer()) { // an EP that used the connection was closed
		lane, err = w.dialBack(a.conn.Peer(), &m.Address)
	}
	if err != nil {
		w.endUnreplied(a, err)
		return nil
	}
	e := w.newEP(lane)
	e.peer, e.sn, e.errMode, e.wireupSent, e.form = p, m.ConnSN, m.ErrMode, true, formOf(&m.Address)
	p.eps[e.sn] = e
	e.countPeerEP(a.conn.Network())
	return e
}

// peerFinished is called by the transport when the peer has shut down its side of the connection of an EP, perhaps because
// it has closed its endpoint. It sends a check: if the endpoint does not exist, the peer replies with WireupEPRemoved.
func (w *Worker) peerFinished(c *ucxtcp.Conn) {
	if e := w.lanes[c.EP()]; e != nil && e.hasChecks() {
		e.check()
	}
}

// checkEP replies to a check of an EP that does not exist, over an open EP to the peer, or over an EP that is created for the
// reply. If neither is possible, the connection ends, which the peer detects.
func (w *Worker) checkEP(a arrival, m *ucxwire.WireupMsg) {
	w.stats.Checks++
	if w.eps.Find(m.DstEP) != nil {
		return
	}
	e := w.openEP(a, m.Address.UUID)
	made := e == nil
	if made {
		e = w.epForReply(a, m)
	}
	if e == nil || !e.canReply() {
		return
	}
	e.sendRemoved(m)
	if made {
		w.todo = append(w.todo, func() { _, _ = e.Close(CloseFlush) }) // an error is that of an EP that failed
		w.engine.Raise()
	}
}

// sendRemoved replies to a message that its sender's endpoint has no endpoint here. The sender's endpoint fails.
func (e *EP) sendRemoved(m *ucxwire.WireupMsg) {
	e.reply(ucxwire.IDWireup, ucxwire.AppendWireup(nil, &ucxwire.WireupMsg{
		Type: ucxwire.WireupEPRemoved, ErrMode: m.ErrMode, ConnSN: m.ConnSN, SrcEP: e.id, DstEP: m.SrcEP, Address: e.w.addressWithoutDevices()}))
}

var errTooManyEPs = fmt.Errorf("%w: too many endpoints of peers (MaxPeerEPs, MaxPeerEPsPerSource)", ucs.ErrRejected)

// refuse rejects a request for an endpoint, or a check, from a peer that has too many endpoints. The endpoint of the peer fails.
// If there is no EP for the reply, refuse breaks the connection of the message.
func (w *Worker) refuse(a arrival, m *ucxwire.WireupMsg) {
	e := w.openEP(a, m.Address.UUID)
	if e == nil {
		w.endUnreplied(a, errTooManyEPs)
		return
	}
	w.stats.Refused++
	if e.canReply() {
		e.sendRemoved(m)
	}
}

// openEP returns an open EP to the peer that sent the message; nil if there is none.
func (w *Worker) openEP(a arrival, uuid uint64) *EP {
	if e := w.lanes[a.conn.EP()]; e != nil && e.state == epOpen {
		return e
	}
	if p := w.peers[uuid]; p != nil {
		for _, e := range p.eps {
			if e.state == epOpen && e.isFrom(a.conn) {
				return e
			}
		}
	}
	return nil
}

// epForReply returns an EP for one reply to a message: on the connection of the message, or, if an EP that used this
// connection was closed, on another connection to the peer if the program has its address. It returns nil if neither is
// possible. The caller closes the EP.
func (w *Worker) epForReply(a arrival, m *ucxwire.WireupMsg) *EP {
	p := w.peers[m.Address.UUID]
	if p != nil && !slices.Contains(p.ifaces, a.conn.Peer()) {
		p = nil
	}
	if p != nil && p.replyEP != nil && len(p.replyEP.control) < maxReplyEPControl {
		return p.replyEP
	}
	if !w.canAccept(a.conn) {
		w.endUnreplied(a, errTooManyEPs)
		return nil
	}
	lane, err := w.tcp.Accept(a.conn)
	back := err != nil && p != nil && p.replyEP == nil && (p.lastReplyConn == nil || p.lastReplyConn.Ended())
	if back {
		lane, err = w.dialBack(a.conn.Peer(), &m.Address)
	}
	if err != nil {
		w.endUnreplied(a, err)
		return nil
	}
	e := w.newEP(lane)
	e.errMode = ucxwire.ErrModePeer
	e.countPeerEP(a.conn.Network())
	if back {
		p.replyEP, p.lastReplyConn, e.repliesTo = e, nil, p
	}
	return e
}

// endUnreplied ends the connection of a message to which no reply is possible, unless an EP uses the connection. Otherwise
// the peer would wait for ever.
func (w *Worker) endUnreplied(a arrival, why error) {
	w.stats.Refused++
	if a.conn.EP() == nil {
		a.conn.End(why)
	}
}

// dialBack connects to the interface of a that listens at to.
func (w *Worker) dialBack(to netip.AddrPort, a *ucxwire.Address) (*ucxtcp.EP, error) {
	for _, d := range a.Devices {
		for _, i := range d.Ifaces {
			if at, err := ucxtcp.ParseAddr(d.Addr, i.Addr); i.Transport == tcpSum && err == nil && at == to {
				lane, err := w.tcp.NewEP(uct.EPParams{DeviceAddr: d.Addr, IfaceAddr: i.Addr})
				if err != nil {
					return nil, err
				}
				return lane.(*ucxtcp.EP), nil
			}
		}
	}
	return nil, fmt.Errorf("%w: the address has no such interface", ucs.ErrUnreachable)
}
