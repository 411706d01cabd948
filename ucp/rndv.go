package ucp

import (
	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A rendezvous: the sender announces a message and keeps its data (RTS). When it is
// received, the data comes by one of three schemes, and the sender learns that it has its
// buffer back:
//
//	get        the receiver gets the data, and acknowledges    RTS -> GET    -> ACK
//	put        the receiver asks for it, the sender puts it    RTS -> RTR <- PUT <- PUT DONE
//	fragments  the receiver asks, the sender sends messages    RTS -> RTR <- DATA
//
// PUT DONE goes right behind the put where the lane keeps their order (link.ordered).
//
// The first two need memory that is registered at the side that is reached: by the caller
// (OpParams.Mem), or for the message where that pays (lease.go).
// A message that is dropped is acknowledged, with ErrCanceled.

// rndvProtocol is the rendezvous of messages.
var rndvProtocol = protocol{
	lanesChanged: (*EP).forgetChoices,
	discard:      (*EP).dropAnnounced,
	handlers: func(w *Worker) []handler {
		return []handler{
			{wire.AMRTR, uct.AMHandlerFunc(w.handleRTR)},
			{wire.AMData, uct.AMHandlerFunc(w.handleData)},
			{wire.AMPutDone, w.handleControl((*Worker).handlePutDone)},
			{wire.AMWithdraw, w.handleControl((*Worker).handleWithdraw)},
		}
	},
}

// announced is a message whose data is still with its sender. It is fetched or refused,
// once.
type announced struct {
	e    *EP
	msgs *messages // of e when it was announced
	id   uint64    // the sender's name of the message; 0 if it has withdrawn it
	n    int       // length of the data
	addr uint64    // of the data at the sender, if there is a key
	key  []byte    // opens the data; empty if it cannot be got

	next, prev *announced // in messages.rndv; next also in Worker.freeAnnounced

	keeper keeper // that has the record; nil if nobody is told of a withdrawal
	named  bool   // entered in messages.byName, as those behind it in messages.rndv are
}

// keeper has the record of a message that was announced and not received.
type keeper interface {
	// withdrawn is called when the sender has withdrawn the message. It reports false if the keeper goes on to
	// have the record, without the data; otherwise the record is free.
	withdrawn() bool
}

// announcedBy is what an RTS says, whose key must be copied to be kept. The announcement
// was charged to its sender.
func announcedBy(e *EP, m *wire.RTS) announced {
	return announced{e: e, msgs: e.msgs, id: m.ID, n: int(m.Length), addr: m.Addr, key: m.Key}
}

// newAnnounced is announcedBy in a record that is to be freed.
func newAnnounced(e *EP, m *wire.RTS) *announced {
	w := e.w
	a := w.freeAnnounced
	if a == nil {
		a = &announced{}
	} else {
		w.freeAnnounced = a.next
	}
	*a = announcedBy(e, m)
	a.enlist()
	return a
}

// maxKeptKey is the longest key that is kept with an announcement, in bytes: about as much as that
// was charged. Keys for ten memory domains have that. Of a peer that has its first window only, keys are
// kept up to maxSmallKey.
const (
	maxKeptKey  = 256
	maxSmallKey = 128
)

// dropLongKey is called when the announcement is to be kept. Without a key the data is asked for.
func (a *announced) dropLongKey() {
	if n := len(a.key); n > maxKeptKey || n > maxSmallKey && a.msgs.Size == leastWindow {
		a.key = nil
	}
}

// free is called when the message is being fetched or was refused, of a record of newAnnounced.
func (a *announced) free() {
	w := a.e.w
	a.delist()
	*a = announced{next: w.freeAnnounced}
	w.freeAnnounced = a
}

// gone is why the data cannot be had any more; nil if it can.
func (a *announced) gone(act action) error {
	switch e := a.e; {
	case a.id == 0 && e.state != epClosing && e.state != epClosed:
		return e.errorOf(act, errWithdrawn)
	case e.receives() && e.msgs == a.msgs:
		return nil
	case e.state == epOpen: // it has started over
		return e.errorOf(act, ucs.ErrPeerClosed)
	case e.failed.err != nil: // it may have been destroyed since
		return e.failure(act, e.failed.cause)
	default:
		return e.refuses(act)
	}
}

// refuse tells the sender that the data is not wanted, with a status that its request ends
// with.
func (a *announced) refuse(st ucs.Status) {
	if e := a.e; a.id != 0 && e.state <= epClosing && e.msgs == a.msgs {
		e.control(ackControl, a.id, uint64(st))
	}
}

// schemeStages are the stages of a receive whose data is being fetched, by scheme.
type schemeStages [askAnew + 1]stage

// askAnew is the stage of a receive that could not get the data, and asks for it.
const askAnew = proto.Fragments + 1

var fetchStages = newFetchStages("receive", nil, nil)

// newFetchStages makes the stages of receives that are called name in errors. c and settled may be nil.
func newFetchStages(name string, c *class, settled func(*Request)) *schemeStages {
	by := &schemeStages{
		proto.Get:       {role: wireup.RMA, done: (*Request).fetched, lends: true},
		proto.Put:       {role: wireup.RMA, done: (*Request).arrived, lends: true, filled: true},
		proto.Fragments: {role: wireup.AM, done: (*Request).arrived},
		askAnew:         {role: noRole, done: (*Request).fetched},
	}
	by[proto.Get].instead = func(r *Request) { r.stage = &by[askAnew] }
	by[askAnew].post = func(r *Request) error { return r.askAnew(by) }
	for i := range by {
		by[i].class, by[i].name, by[i].sized, by[i].fetches, by[i].settled = c, name, true, true, settled
	}
	return by
}

// fetchRecord is what a receive notes of a message that was announced.
type fetchRecord struct {
	id        uint64 // the sender's name of it
	n         int    // how much of it the receive takes, if it takes it in order
	inOrder   bool   // it has no buffer: it takes the data as it comes, or gets it into pieces
	truncated bool   // the message is longer than what the receive takes
}

// fetch brings the data into the buffer of r, a receive that nothing knows yet and that
// gone has not refused. r ends when it is there: with StatusTruncated if it is longer than
// the buffer, which has the first bytes then. The record is not used any more when fetch returns.
func (a *announced) fetch(r *Request, by *schemeStages) {
	e := a.e
	*recordOf[fetchRecord](r) = fetchRecord{id: a.id, truncated: a.n > len(r.buf)}
	r.ep, r.buf, r.off = e, r.buf[:min(len(r.buf), a.n)], 0
	if len(r.buf) == 0 {
		a.refuse(ucs.StatusOK)
		r.stage = &by[proto.Fragments]
		r.settle(r.fetchStatus())
		return
	}
	key := a.open(len(r.buf))
	s := e.scheme(r, key)
	r.stage = &by[s]
	e.w.stats.fetched[s].Inc()
	if s == proto.Get && r.gotAtOnce(a, key) {
		return
	}
	if s != proto.Get && key != nil {
		keyDone(key)
	}
	r.awaitPeer()
	if s == proto.Get {
		r.get(a, key)
	} else {
		r.request(a.id, s)
	}
	r.posted()
}

// askAnew has the sender put or send the data that could not be got. What was got of it is
// written again.
func (r *Request) askAnew(by *schemeStages) error {
	if r.unwanted() {
		r.fail(ucs.StatusCanceled)
		return nil
	}
	if l := r.leased; l != nil {
		r.leased, r.mem = nil, nil
		l.end()
	}
	s := proto.Fragments
	f := recordOf[fetchRecord](r)
	if !f.inOrder { // else the data was to come into pieces, which take it as it comes
		s = r.ep.scheme(r, nil)
	}
	r.stage = &by[s]
	r.moveTo(placeAwaited)
	r.comp.Count++ // it waits for the peer
	r.request(f.id, s)
	return nil
}

// open is the key of the first n bytes of the data; nil if they cannot be got. One that
// makes no sense is counted, and the data comes in fragments then.
func (a *announced) open(n int) *RKey {
	if len(a.key) == 0 || !a.e.reachable(wireup.RMA) {
		return nil
	}
	key, err := a.msgs.unpack(a.key)
	if err != nil {
		return nil
	}
	if key.denies(a.addr, n, uct.AccessRemoteRead) != "" {
		a.e.w.stats.badMessages.Inc()
		keyDone(key)
		return nil
	}
	return key
}

// fetchStatus is how a receive ends whose data is there.
func (r *Request) fetchStatus() ucs.Status {
	if recordOf[fetchRecord](r).truncated {
		return ucs.StatusTruncated
	}
	return ucs.StatusOK
}

// lead starts a request that does what its parent r waits for: it has the parent's place
// with the peer.
func (r *Request) lead(child *Request) {
	r.moveTo(placeLed)
	child.parent = r
	if child, _ = child.start(); child != nil { // an error is the parent's, too
		child.Release()
	}
}

// fetched runs when the data was got, or was not.
func (r *Request) fetched() {
	st := r.comp.Status
	if r.flags&reqUnreached != 0 && r.repeats(st) {
		return
	}
	if e := r.ep; e.state <= epClosing {
		e.control(ackControl, recordOf[fetchRecord](r).id, uint64(st))
	}
	r.arrived()
}

// arrived ends a receive for which nothing more comes.
func (r *Request) arrived() {
	st := r.comp.Status
	if st == ucs.StatusOK {
		st = r.fetchStatus()
	}
	r.settle(st)
}

// rtrRecord is what the sender of a message is asked for.
type rtrRecord struct {
	id   uint64 // its name of the message
	recv uint64 // the name of the receive
	n    int    // how much it is to send, if there is no memory to put it in
}

// rtrStage has the sender of a message put or send its data.
var rtrStage = stage{
	name: "receive", role: wireup.AM, ahead: true, settled: (*Request).answered, post: (*Request).sendRTR,
}

// request tells the sender to put or to send the data of the message that it calls id.
func (r *Request) request(id uint64, s proto.Scheme) {
	r.nameIt()
	rtr := r.worker.newRequest(r.ep, &rtrStage)
	q := recordOf[rtrRecord](rtr)
	*q = rtrRecord{id: id, recv: r.remote}
	if s == proto.Put {
		rtr.buf, rtr.mem = r.buf, r.mem
	} else {
		q.n = r.wanted()
	}
	rtr.answer()
}

func (r *Request) sendRTR() error {
	x, w, q := r.ep.lane(wireup.AM), r.worker, recordOf[rtrRecord](r)
	m := wire.RTR{EP: r.ep.link.conn.MessageEP(), ID: q.id, Recv: q.recv, Length: uint64(q.n)}
	w.msg.b = w.msg.b[:0]
	if r.mem != nil {
		m.Length, m.Addr = uint64(len(r.buf)), r.mem.AddrOf(r.buf)
	}
	w.msg.b = m.Append(w.msg.b)
	if r.mem != nil {
		w.msg.b = r.mem.AppendKey(w.msg.b)
	}
	_, err := x.AM.AMBcopy(wire.AMRTR, &w.msg)
	return err
}

// handleData takes a part of the data of a receive.
func (w *Worker) handleData(data []byte, _ uct.Desc) bool {
	var f wire.Frag
	part, ok := f.Unpack(data)
	if !ok {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.connected(f.EP)
	r := w.fetching(e, f.ID)
	if r == nil || f.Offset != uint64(r.off) || len(part) > r.wanted()-r.off {
		w.stats.badMessages.Inc()
		return false
	}
	switch {
	case r.flags&reqGivenUp != 0:
	case recordOf[fetchRecord](r).inOrder:
		if r.stage.class.write(r, r.off, part); w.fetching(e, f.ID) != r { // the Unpacker has closed the EP
			return false
		}
	default:
		bulk.Copy(r.buf[r.off:], part)
	}
	if r.off += len(part); r.off == r.wanted() {
		r.comp.Complete(ucs.StatusOK)
	}
	return false
}

// wanted is how much of the data of a message a receive takes that asks for it.
func (r *Request) wanted() int {
	if f := recordOf[fetchRecord](r); f.inOrder {
		return f.n
	}
	return len(r.buf)
}

// fetching is the receive that a peer is to put or send data for, by the name that it was
// told; nil if there is none.
func (w *Worker) fetching(e *EP, id uint64) *Request {
	r := w.pool.remote.Find(id)
	if e == nil || r == nil || r.ep != e || r.place() != placeAwaited || !r.stage.fetches {
		return nil
	}
	return r
}

// handlePutDone ends a receive whose data was put.
func (w *Worker) handlePutDone(c *wire.Control, e *EP) bool {
	r := w.fetching(e, c.ID)
	if r == nil || !r.stage.filled {
		return false
	}
	r.comp.Complete(c.Status())
	return true
}

// scheme chooses how the data of a message comes into the buffer of r, and registers that
// if it is to be. key opens the data, and is nil if it cannot be got.
func (e *EP) scheme(r *Request, key *RKey) proto.Scheme {
	n, i := len(r.buf), e.transport(wireup.RMA)
	to := reach{gettable: key != nil}
	if i != nil && r.mem != nil {
		to.reached = r.mem.In(i.domain) != nil
		to.writable = to.reached && r.mem.Access()&uct.AccessRemoteWrite != 0
		to.far = !r.mem.AllocatedBy(i.domain)
	}
	to.leased = i != nil && r.mem == nil && i.leases(n)
	s, registers := e.chooseScheme(n, to)
	if !registers || r.lease(i.domain, fetchRights[s]) {
		return s
	}
	to.leased = false
	s, _ = e.chooseScheme(n, to)
	return s
}

// schemeChoice is the scheme that was chosen for n bytes.
type schemeChoice struct {
	n         int
	to        reach
	scheme    proto.Scheme
	registers bool // the buffer has to be registered for it
}

// chooseScheme chooses the scheme for n bytes. The latest choice is kept until the lanes change:
// the next message is often as long, and the costs of all ways take as many instructions as
// the rest of a rendezvous.
func (e *EP) chooseScheme(n int, to reach) (s proto.Scheme, registers bool) {
	c := &e.messaging().choice
	if c.n != n || c.to != to || n == 0 {
		v := e.ways(n, to)
		s = v.Choose(n, e.w.ctx.cfg.rndvScheme())
		*c = schemeChoice{n: n, to: to, scheme: s, registers: v.Registers(s)}
	}
	return c.scheme, c.registers
}

// fetchRights are the rights that a buffer needs, by how the data comes.
var fetchRights = [...]uct.Access{proto.Get: uct.AccessLocalWrite, proto.Put: uct.AccessRemoteWrite}

// ways are the ways for n bytes.
func (e *EP) ways(n int, to reach) (v proto.Rendezvous) {
	am, rma := e.transport(wireup.AM), e.transport(wireup.RMA)
	v.Message = am.costs().Costs[uct.AMBcopy]
	v.Fragment = proto.Move{Cost: v.Message, Piece: am.sends().data}
	if rma == nil {
		return v
	}
	t := rma.transfers()
	if to.gettable {
		bare, copied := rma.move(&t.get[registered], n, uct.GetShort), rma.move(&t.get[unregistered], n, uct.GetShort)
		if to.farData {
			bare, copied = rma.reachesFar(bare), rma.reachesFar(copied)
		}
		switch {
		case to.reached:
			v.Get = bare
		case to.leased && rma.domain.Attr.NeedMemH:
			v.Get = proto.Quicker(n, copied, rma.leased(bare, n))
		default:
			v.Get = copied
		}
	}
	put := rma.move(&t.put[unregistered], n, uct.PutShort)
	switch {
	case to.writable && to.far:
		v.Put = rma.reachesFar(put)
	case to.writable:
		v.Put = put
	case to.leased:
		v.Put = rma.leased(rma.reachesFar(put), n)
	}
	v.Get, v.Put = e.railMove(v.Get, n), e.railMove(v.Put, n)
	return v
}

// move is how a transport moves n bytes of a message.
func (i *iface) move(t *proto.Table, n int, first uct.Variant) proto.Move {
	return moveAt(&i.costs().Costs, t, n, first)
}
