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

// peer is a worker of UCX. Its n-th endpoint to this worker is matched with the n-th EP to it.
type peer struct {
	uuid uint64
	eps  map[uint16]*EP
	next uint16
	// ifaces are where it listens, by the address that the program has; nil: none.
	ifaces []netip.AddrPort
	// named: the program has its address. The record is kept then: UCX never counts its endpoints to a worker anew.
	named bool
	// back is an EP on a connection of its own to the peer, which was made for replies; there is one at a time. backOver is the
	// connection of the last one that was closed.
	back     *EP
	backOver *ucxtcp.Conn
}

// maxReplies is how many messages of EPs that were made for replies may wait.
const maxReplies = 64

// mayAccept reports whether a connection may get one more EP that a peer makes and that the program has not admitted. Such
// an EP makes its connection exempt from the transport's limits.
func (w *Worker) mayAccept(c *ucxtcp.Conn) bool {
	return w.byPeers < w.cfg.MaxPeerEPs && w.bySource[c.Network()] < w.cfg.MaxPeerEPsPerSource
}

// count has the EP count as one that a peer made.
func (e *EP) count(source netip.Prefix) {
	e.source = source
	e.w.byPeers++
	e.w.bySource[source]++
}

// Admit says that the program accepts the peer of an EP that the peer has made: the EP no longer counts to
// Config.MaxPeerEPs and MaxPeerEPsPerSource. A program admits peers that have shown who they are, as UCX's protocol does not.
// NewEP does it too. It does nothing for EPs that do not count.
func (e *EP) Admit() { e.uncount() }

// uncount ends that the EP counts as one that a peer made.
func (e *EP) uncount() {
	if !e.source.IsValid() {
		return
	}
	w := e.w
	w.byPeers--
	if w.bySource[e.source]--; w.bySource[e.source] == 0 {
		delete(w.bySource, e.source)
	}
	e.source = netip.Prefix{}
}

// of reports whether a connection is from the peer of the EP, as far as UCX's protocol identifies peers. Ids of EPs
// and operations in messages of other connections are ignored.
func (e *EP) of(c *ucxtcp.Conn) bool {
	return c == e.lane.Conn() || c.Peer() == e.lane.Peer() || e.peer != nil && slices.Contains(e.peer.ifaces, c.Peer())
}

// epOf is the EP that a message names; nil if there is none with the peer that sent the message.
func (w *Worker) epOf(a arrival, id uint64) *EP {
	if e := w.eps.Find(id); e != nil && e.of(a.conn) {
		return e
	}
	return nil
}

// requestOf is the operation that a message names; nil if there is none with the peer that sent the message.
func (w *Worker) requestOf(a arrival, id uint64) *Request {
	r := w.reqs.Find(id)
	if r == nil {
		return nil
	}
	e := r.ep
	if e == nil && r.msg != nil { // a receive
		e = r.msg.ep
	}
	if e == nil || !e.of(a.conn) {
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

// add enters an EP and returns its number.
func (p *peer) add(e *EP) uint16 {
	for p.eps[p.next] != nil || p.next == ucxwire.NoConnSN {
		p.next++
	}
	sn := p.next
	p.eps[sn] = e
	p.next++
	return sn
}

// unadopted is the first EP that the peer made from one of the interfaces and that is not adopted; nil: there is none.
func (p *peer) unadopted(from []netip.AddrPort) *EP {
	var first *EP
	for _, e := range p.eps {
		if !e.adopted && slices.Contains(from, e.lane.Peer()) && (first == nil || e.sn < first.sn) {
			first = e
		}
	}
	return first
}

// dropPeer forgets a peer without EPs, unless the program named it.
func (w *Worker) dropPeer(p *peer) {
	if len(p.eps) == 0 && !p.named {
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

// request asks the peer for its endpoint, once.
func (e *EP) request() {
	if e.requested || e.peer == nil {
		return
	}
	e.requested = true
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

// bareAddress is the address of the worker without devices.
func (w *Worker) bareAddress() ucxwire.Address {
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
			return w.late()
		}
		if e.mayAnswer() {
			e.sendWireup(ucxwire.WireupRequest, e.sockAddress())
		}
	case ucxwire.WireupReply, ucxwire.WireupReplyReconfig:
		e := w.epOf(a, m.DstEP)
		if e == nil {
			return w.late()
		}
		if m.SrcEP == 0 || !e.setRemote(m.SrcEP) {
			return false
		}
		if (e.sock != nil || m.Type == ucxwire.WireupReplyReconfig) && e.mayAnswer() {
			e.sendWireup(ucxwire.WireupAck, w.bareAddress())
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

// setRemote learns the id of the peer's endpoint; false if it has another one already.
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
		e = w.requested(a, m)
	}
	if e == nil {
		return w.late()
	}
	if e.errMode != m.ErrMode {
		e.failLater(fmt.Errorf("%w: the peer's endpoint has another error mode", ucs.ErrRejected))
		return true
	}
	if !e.setRemote(m.SrcEP) {
		return false
	}
	address := w.bareAddress()
	if e.sock != nil {
		address = e.sockAddress()
	}
	if e.mayAnswer() {
		e.sendWireup(ucxwire.WireupReply, address)
	}
	return true
}

// requested is the EP that a request without a target is for: the one with the same number, else one on the connection
// that brought the request.
func (w *Worker) requested(a arrival, m *ucxwire.WireupMsg) *EP {
	if m.Address.UUID == w.uuid || m.ConnSN == ucxwire.NoConnSN {
		return nil
	}
	p := w.peerOf(m.Address.UUID)
	if e := p.eps[m.ConnSN]; e != nil {
		if !e.of(a.conn) {
			return nil
		}
		return e
	}
	if e := w.lanes[a.conn.EP()]; e != nil && e.peer == p && e.remote == 0 {
		return e
	}
	defer w.dropPeer(p)
	if !w.mayAccept(a.conn) {
		w.refuse(a, m)
		return nil
	}
	lane, err := w.tcp.Accept(a.conn)
	if err != nil && slices.Contains(p.ifaces, a.conn.Peer()) { // an EP of this side was closed on it
		lane, err = w.dialBack(a.conn.Peer(), &m.Address)
	}
	if err != nil {
		w.unanswered(a, err)
		return nil
	}
	e := w.newEP(lane)
	e.peer, e.sn, e.errMode, e.requested, e.form = p, m.ConnSN, m.ErrMode, true, formOf(&m.Address)
	p.eps[e.sn] = e
	e.count(a.conn.Network())
	return e
}

// peerFinished is called by the transport when the peer sends no more on the connection of an EP: perhaps it has closed its
// endpoint.
func (w *Worker) peerFinished(c *ucxtcp.Conn) {
	if e := w.lanes[c.EP()]; e != nil && e.hasChecks() {
		e.check()
	}
}

// checkEP replies to a check of an endpoint that is not there: on an EP to the peer that checks, or on one that is made for the
// reply. If there is none, the peer learns of it from the end of the connection.
func (w *Worker) checkEP(a arrival, m *ucxwire.WireupMsg) {
	w.stats.Checks++
	if w.eps.Find(m.DstEP) != nil {
		return
	}
	e := w.openEP(a, m.Address.UUID)
	made := e == nil
	if made {
		e = w.replyEP(a, m)
	}
	if e == nil || !e.mayAnswer() {
		return
	}
	e.sendRemoved(m)
	if made {
		w.todo = append(w.todo, func() { _, _ = e.Close(CloseFlush) }) // an error is that of an EP that failed
		w.engine.Raise()
	}
}

// sendRemoved replies to the sender of a message that there is no endpoint for its endpoint, which fails.
func (e *EP) sendRemoved(m *ucxwire.WireupMsg) {
	e.reply(ucxwire.IDWireup, ucxwire.AppendWireup(nil, &ucxwire.WireupMsg{
		Type: ucxwire.WireupEPRemoved, ErrMode: m.ErrMode, ConnSN: m.ConnSN, SrcEP: e.id, DstEP: m.SrcEP, Address: e.w.bareAddress()}))
}

var errTooManyEPs = fmt.Errorf("%w: too many endpoints of peers (MaxPeerEPs, MaxPeerEPsPerSource)", ucs.ErrRejected)

// refuse rejects a request for an endpoint, or a check, of a peer that has too many: the endpoint of the peer fails. Without an EP
// for the reply, the connection of the message ends.
func (w *Worker) refuse(a arrival, m *ucxwire.WireupMsg) {
	e := w.openEP(a, m.Address.UUID)
	if e == nil {
		w.unanswered(a, errTooManyEPs)
		return
	}
	w.stats.Refused++
	if e.mayAnswer() {
		e.sendRemoved(m)
	}
}

// openEP is an EP to the peer that sent the message; nil if none is open.
func (w *Worker) openEP(a arrival, uuid uint64) *EP {
	if e := w.lanes[a.conn.EP()]; e != nil && e.state == epOpen {
		return e
	}
	if p := w.peers[uuid]; p != nil {
		for _, e := range p.eps {
			if e.state == epOpen && e.of(a.conn) {
				return e
			}
		}
	}
	return nil
}

// replyEP is an EP for one reply to a message: on the connection that brought it, or, if an EP of this side was closed on that, on
// another connection to the peer if the program has its address. nil: there is none. The caller closes the EP.
func (w *Worker) replyEP(a arrival, m *ucxwire.WireupMsg) *EP {
	p := w.peers[m.Address.UUID]
	if p != nil && !slices.Contains(p.ifaces, a.conn.Peer()) {
		p = nil
	}
	if p != nil && p.back != nil && len(p.back.control) < maxReplies {
		return p.back
	}
	if !w.mayAccept(a.conn) {
		w.unanswered(a, errTooManyEPs)
		return nil
	}
	lane, err := w.tcp.Accept(a.conn)
	back := err != nil && p != nil && p.back == nil && (p.backOver == nil || p.backOver.Ended())
	if back {
		lane, err = w.dialBack(a.conn.Peer(), &m.Address)
	}
	if err != nil {
		w.unanswered(a, err)
		return nil
	}
	e := w.newEP(lane)
	e.errMode = ucxwire.ErrModePeer
	e.count(a.conn.Network())
	if back {
		p.back, p.backOver, e.backTo = e, nil, p
	}
	return e
}

// unanswered ends the connection of a message that gets no reply, unless an EP of this side uses it: the peer would wait for
// ever.
func (w *Worker) unanswered(a arrival, why error) {
	w.stats.Refused++
	if a.conn.EP() == nil {
		a.conn.End(why)
	}
}

// dialBack connects to the interface of an address that listens at the given place.
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
