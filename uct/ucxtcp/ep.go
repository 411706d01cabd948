package ucxtcp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

type epState uint8

const (
	epReady epState = iota
	epFailed
	epClosed
)

// EP is an endpoint. It has its own connection, which also carries the messages of an EP of the
// peer in the other direction, if there is one.
type EP struct {
	base.Slot // in Iface.eps
	it        *Iface
	conn      *Conn // nil if there is none
	sends     bool  // this side may send messages on conn
	opened    bool  // sends is or was true
	state     epState
	pending   base.PendingQueue
	err       error // error of all operations after the EP has failed or is closed
	status    ucs.Status

	early     []byte // buffer for messages that are posted before sends is true; nil if there are none
	earlyLen  int
	flushes   opList
	puts      uint32 // number of empty puts that were sent
	putsAcked uint32 // number of these that were acknowledged
	unflushed bool   // messages were sent after the last put

	peer         netip.AddrPort // address at which the peer listens; the zero AddrPort before Connect
	sn           uint64         // sequence number of an interface connection to the peer
	key          uint64         // own key of an endpoint connection; 0 for an interface connection
	remote       uint64         // key of the peer
	stale        *Conn          // connection of the peer that it will close, because it uses ours
	dials        bool           // this side dials
	postWhenOpen bool           // posts return ErrNoResource until the EP is connected
	deadline     time.Time      // time limit for connecting; zero: no limit
	within       time.Duration  // EPParams.Within
}

var (
	_ uct.EP          = (*EP)(nil)
	_ uct.EPConnector = (*EP)(nil)
)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops { return &uct.Ops{AM: e, Check: e, Connect: e} }

// NewEP implements uct.Iface. With addresses the EP uses an interface connection, which it shares
// with an EP of the peer: the n-th EP to the peer matches the n-th EP of the peer to this iface.
// Without addresses the EP is one side of an endpoint connection.
func (it *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	e := &EP{it: it, dials: true, postWhenOpen: p.Dial != uct.DialOnUse, within: p.Within}
	if err := e.setAddress(&p); err != nil {
		return nil, it.opError("new ep", err)
	}
	it.eps.Add(e)
	if e.key != 0 {
		it.byKey[e.key] = e
		return e, nil
	}
	id := peerID{e.peer, e.sn}
	it.nextSN[e.peer] = e.sn + 1
	it.byPeer[id] = e
	if c := it.unexpected[id]; c != nil && e.peer != it.listen {
		delete(it.unexpected, id)
		c.adopt(e)
	} else if e.postWhenOpen {
		e.start()
	}
	return e, nil
}

// Accept makes an EP that sends on c, a connection that the peer has made and no EP names, whatever
// its serial number is. The EP dials no other address. ErrInvalidState if the connection has ended,
// or has or had an EP.
func (it *Iface) Accept(c *Conn) (*EP, error) {
	id := peerID{c.peer, c.sn}
	err := error(nil)
	switch {
	case it.closed:
		err = uct.ErrClosed
	case c.state != connOpen || it.unexpected[id] != c || it.byPeer[id] != nil:
		err = fmt.Errorf("%w: the connection has ended, or has or had an EP", ucs.ErrInvalidState)
	}
	if err != nil {
		return nil, it.opError("accept", err)
	}
	e := &EP{it: it, peer: c.peer, sn: c.sn, postWhenOpen: true}
	it.eps.Add(e)
	it.byPeer[id] = e
	delete(it.unexpected, id)
	c.adopt(e)
	return e, nil
}

// setAddress sets the peer and the sequence number from the addresses of p, or chooses a key if
// there are none.
func (e *EP) setAddress(p *uct.EPParams) error {
	it := e.it
	if it.closed {
		return uct.ErrClosed
	}
	if p.DeviceAddr == nil && p.IfaceAddr == nil {
		e.key = it.newKey()
		return nil
	}
	d, err := parseDeviceAddr(p.DeviceAddr)
	if err != nil {
		return err
	}
	port, err := parseIfaceAddr(p.IfaceAddr)
	if err != nil {
		return err
	}
	if err = it.reach(&d); err != nil {
		return err
	}
	e.peer = netip.AddrPortFrom(d.ip, port)
	e.sn, e.dials = it.nextSN[e.peer], p.Dial.Trusted()
	for id := (peerID{e.peer, e.sn}); it.byPeer[id] != nil || it.closedEPs[id] != nil; id.sn++ {
		e.sn = id.sn + 1 // an accepted connection, of which the peer chose the sequence number, has this one
	}
	if p.Dial == uct.DialedByPeer && it.unexpected[peerID{e.peer, e.sn}] == nil {
		return fmt.Errorf("%w: the peer has not connected, and its address is only its own claim", uct.ErrUnreachable)
	}
	return nil
}

// newKey returns an unused and unpredictable key. A peer needs only the key to use the endpoint
// connection.
func (it *Iface) newKey() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never returns an error: it terminates the process instead
		if k := binary.LittleEndian.Uint64(b[:]); k != 0 && it.byKey[k] == nil {
			return k
		}
	}
}

// EPAddr implements uct.EPConnector. It returns an endpoint address of UCX's tcp transport. For an
// EP that was made with addresses, the address is of no use.
func (e *EP) EPAddr(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(e.it.IfaceAddr(b), e.key)
}

// Connect implements uct.EPConnector. The side whose iface has the lower address dials, and the
// other side waits. ErrInvalidParam for an EP that was made with addresses.
func (e *EP) Connect(device, ep []byte) error {
	it := e.it
	if e.state != epReady {
		return e.err
	}
	d, err := parseDeviceAddr(device)
	if err != nil {
		return it.opError("connect ep", err)
	}
	port, key, err := parseEPAddr(ep)
	if err == nil {
		err = it.reach(&d)
	}
	peer := netip.AddrPortFrom(d.ip, port)
	switch {
	case err != nil:
		return it.opError("connect ep", err)
	case e.remote != 0 || e.key == 0:
		return it.opError("connect ep", fmt.Errorf("%w: the endpoint has the address of a peer already", uct.ErrInvalidParam))
	case peer == it.listen && key == e.key:
		return it.opError("connect ep", fmt.Errorf("%w: the address is that of the endpoint itself", uct.ErrInvalidParam))
	}
	e.peer, e.remote = peer, key
	if e.conn != nil && e.conn.peer != peer {
		e.conn.fail(fmt.Errorf("%w: the connection request names %v, and the address of the peer %v", ucs.ErrRejected, e.conn.peer, peer))
		return nil
	}
	if e.conn != nil {
		e.conn.Resume()
	}
	order := it.listen.Compare(peer)
	e.dials = order < 0 || order == 0 && e.key < key
	e.start()
	return nil
}

// start dials, or waits for the peer to connect, if the EP has no connection. Progress reports
// failures.
func (e *EP) start() {
	if e.conn != nil || e.state != epReady || !e.deadline.IsZero() || !e.peer.IsValid() {
		return
	}
	d := e.it.cfg.ConnTimeout
	if e.within > 0 && e.dials {
		d = min(d, e.within)
	} else {
		d = max(d, e.within)
	}
	e.setDeadline(time.Now().Add(d))
	if e.dials {
		e.dial()
	}
}

// setDeadline sets the time by which the EP must be connected.
func (e *EP) setDeadline(t time.Time) {
	if e.deadline.IsZero() {
		e.it.connecting++
	}
	e.deadline = t
	_ = e.it.tickEvery(deadlineTick)
}

// clearDeadline removes the deadline.
func (e *EP) clearDeadline() {
	if !e.deadline.IsZero() {
		e.deadline = time.Time{}
		e.it.connecting--
	}
}

// reserve returns n bytes for a message, which commit queues. At most one reservation can be open.
func (e *EP) reserve(n int) ([]byte, error) {
	if e.sends && e.state == epReady && !e.pending.Blocks() {
		if b := e.conn.tx.reserve(n); b != nil {
			return b, nil
		}
	}
	return e.reserveSlow(n)
}

//go:noinline
func (e *EP) reserveSlow(n int) ([]byte, error) {
	switch {
	case e.state != epReady:
		return nil, e.err
	case e.pending.Blocks():
	case !e.sends:
		if e.start(); e.hasEarlyRoom(n) {
			return e.early[e.earlyLen : e.earlyLen+n : e.earlyLen+n], nil
		}
	default:
		if b := e.conn.makeTxRoom(n); b != nil {
			return b, nil
		}
	}
	return nil, uct.ErrNoResource
}

// hasEarlyRoom reports whether a message of n bytes can be posted before the EP is connected.
func (e *EP) hasEarlyRoom(n int) bool {
	if e.postWhenOpen {
		return false
	}
	if e.early == nil {
		e.early = make([]byte, e.it.cfg.TxBuf)
	}
	return e.earlyLen+n <= len(e.early)
}

// commit queues the message in the n bytes that reserve returned.
func (e *EP) commit(n int) {
	e.unflushed = true
	if e.sends {
		e.conn.commit(n)
		return
	}
	e.earlyLen += n
}

// takeEarly removes and returns the messages that were posted before the EP was connected.
func (e *EP) takeEarly() []byte {
	b := e.early[:e.earlyLen]
	e.early, e.earlyLen = nil, 0
	return b
}

// AddPending implements uct.EP.
func (e *EP) AddPending(r *uct.PendingReq) error {
	if e.state != epReady {
		return e.err
	}
	if e.pending.Empty() && e.hasResources() {
		return uct.ErrBusy
	}
	return e.it.arb.Add(&e.pending, r)
}

// hasResources reports whether there are resources for every type of message.
func (e *EP) hasResources() bool {
	if e.it.ops.left == 0 {
		return false
	}
	if !e.sends {
		e.start()
		return e.state == epReady && e.hasEarlyRoom(frameLen+e.it.maxAM) // zcopy messages are copied
	}
	return e.conn.makeTxRoom(frameLen+maxHeader+int(e.it.cfg.TxSegSize)) != nil
}

// PurgePending implements uct.EP.
func (e *EP) PurgePending(f func(*uct.PendingReq)) { e.it.arb.Purge(&e.pending, f) }

// Fence implements uct.EP. It has no effect, because the peer handles everything in order.
func (e *EP) Fence() error {
	if e.state != epReady {
		return e.err
	}
	return nil
}

// setFailed sets the EP to failed. It reports false if the EP was failed or closed before.
func (e *EP) setFailed(reason error, st ucs.Status) bool {
	if e.state != epReady {
		return false
	}
	e.state, e.status, e.sends = epFailed, st, false
	e.err = e.it.opError("ep to "+e.peer.String(), fmt.Errorf("%w: %w", uct.ErrEPFailed, reason))
	e.clearDeadline()
	e.takeEarly()
	e.it.arb.Fail(&e.pending)
	return true
}

// completeFlushes completes the flushes in flight with st and returns their number.
func (e *EP) completeFlushes(st ucs.Status) (n int) {
	for o := e.flushes.pop(); o != nil; o = e.flushes.pop() {
		e.it.complete(o, st)
		n++
	}
	return n
}

// reportFailed calls OnError, unless the EP was closed after setFailed.
func (e *EP) reportFailed() {
	e.it.freed = true
	if e.state == epFailed {
		e.it.onError(e, e.err)
	}
}

// fail fails the EP and its connection, which is not made again. Progress calls OnError.
func (e *EP) fail(err error) {
	if e.conn != nil {
		e.conn.adopted = false
		e.conn.fail(err)
		return
	}
	if e.setFailed(err, statusOf(err)) {
		e.dropStale()
		e.it.failed = append(e.it.failed, e)
	}
}

// Close implements uct.EP. It copies the unwritten bytes of zcopy sends, so that the caller may
// reuse its buffers and the peer still receives the data. The peer may continue to send on the
// connection, and its messages are delivered as before.
func (e *EP) Close() error {
	if e.state == epClosed {
		return nil
	}
	it := e.it
	if e.state == epReady {
		e.err = it.opError("ep", uct.ErrClosed)
	}
	e.state = epClosed
	e.clearDeadline()
	it.arb.Purge(&e.pending, func(*uct.PendingReq) {})
	it.eps.Remove(e)
	if e.key != 0 {
		delete(it.byKey, e.key)
	} else {
		delete(it.byPeer, peerID{e.peer, e.sn})
	}
	e.dropStale()
	comps := e.detach()
	if c := e.conn; c != nil {
		c.removeEP(e.takeEarly())
	}
	e.conn, e.sends, e.early = nil, false, nil
	for _, comp := range comps {
		comp.Complete(ucs.StatusCanceled)
	}
	return nil
}

// dropStale closes the stale connection of the peer.
func (e *EP) dropStale() {
	if c := e.stale; c != nil {
		e.stale = nil
		c.discard()
	}
}

// detach removes the callers' buffers and completions from the operations of the EP. It returns the
// completions.
func (e *EP) detach() (comps []*uct.Completion) {
	it := e.it
	cancel := func(o *op) {
		if o != nil && o.ep == e {
			if comp := o.detach(); comp != nil {
				comps = append(comps, comp)
			}
		}
	}
	if e.conn != nil {
		cancel(e.conn.tx.zcopy)
	}
	for o := e.flushes.pop(); o != nil; o = e.flushes.pop() {
		cancel(o)
		it.ops.put(o)
	}
	for o := it.written.first; o != nil; o = o.next {
		cancel(o)
	}
	return comps
}

// Peer returns the address at which the peer listens; the zero AddrPort if it is not known yet.
func (e *EP) Peer() netip.AddrPort { return e.peer }

// Conn returns the connection of the EP; nil if there is none.
func (e *EP) Conn() *Conn { return e.conn }

// Opened reports whether the EP is or was connected. If it is false, nothing was sent.
func (e *EP) Opened() bool { return e.opened }

// Failed reports whether the EP has failed or is closed.
func (e *EP) Failed() bool { return e.state != epReady }
