package ucp

import (
	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Rendezvous: the sender sends an RTS, and the data remains in its buffer. When a receive
// matches, one of three schemes transfers the data. Then the receiver acknowledges that it no longer
// needs the sender's buffer:
//
//	get        the receiver gets the data, and acknowledges      RTS -> GET    -> ACK
//	put        the receiver requests it, the sender puts it      RTS -> RTR <- PUT <- PUT DONE
//	fragments  the receiver requests it, the sender sends it     RTS -> RTR <- DATA
//
// The sender posts PUT DONE directly after the put if the lane preserves their order (link.ordered).
//
// Get and put need registered memory at the target of the operation: registered by the caller
// (OpParams.Mem), or for the message if that is faster (registration.go).
// If the receiver drops the message, it acknowledges with ErrCanceled.

// rndvProtocol implements the rendezvous of messages.
var rndvProtocol = protocol{
	traffic:      func(e *EP) (int64, bool) { return 0, e.msgs == nil || e.msgs.rndv.first == nil },
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

// rndvMessages is the state of an EP for rendezvous messages of the peer, and its choices for those that it sends.
type rndvMessages struct {
	first  *announced            // messages with an RTS that were not fetched yet, the latest first
	byName map[uint64]*announced // messages of first by the sender's id; nil until the first withdrawal
	steps  uint64                // number of messages that were entered into byName

	from       [rndvChannels]rndvLengths
	overlapped [rndvChannels]rndvLengths // with PreferThroughput
	choice     schemeChoice              // the latest choice of a scheme; length 0 if there is none
}

// announced is a rendezvous message: its RTS has arrived, and its data is still at the sender. The receiver fetches or
// refuses it, once.
type announced struct {
	e    *EP
	msgs *messages // e.msgs when the RTS arrived
	id   uint64    // the sender's id of the message; 0 if it was withdrawn
	n    int       // length of the data in bytes
	addr uint64    // address of the data at the sender, if there is a key
	key  []byte    // packed key for the data; empty if gets cannot read the data

	next, prev *announced // in rndvMessages.first; next also in messageState.freeRTS

	owner announcedOwner // owner of the record; nil if a withdrawal need not be reported
	named bool           // in rndvMessages.byName; then all later messages in rndvMessages.first are there too
}

// announcedOwner owns the record of a rendezvous message that no receive has matched.
type announcedOwner interface {
	// withdrawn is called when the sender has withdrawn the message. It returns false if the owner still
	// needs the record, without the data; otherwise the record is free.
	withdrawn() bool
}

// announcedBy returns the message of an RTS. The caller must copy the key if it stores the message. The RTS
// was charged to its sender.
func announcedBy(e *EP, m *wire.RTS) announced {
	return announced{e: e, msgs: e.msgs, id: m.ID, n: int(m.Length), addr: m.Addr, key: m.Key}
}

// newAnnounced is announcedBy in a record that the caller must free.
func newAnnounced(e *EP, m *wire.RTS) *announced {
	w := e.w
	a := w.messages.freeRTS
	if a == nil {
		a = &announced{}
	} else {
		w.messages.freeRTS = a.next
	}
	*a = announcedBy(e, m)
	a.enlist()
	return a
}

// maxKeptKey is the maximum length of a key that is stored with an RTS, in bytes: about the charge of an
// RTS. Keys for ten memory domains fit. For a peer with only its first window the limit is
// maxSmallKey.
const (
	maxKeptKey  = 256
	maxSmallKey = 128
)

// dropLongKey drops a key that is too long to be stored. It is called before the message is stored. Without a key the
// receiver requests the data.
func (a *announced) dropLongKey() {
	if n := len(a.key); n > maxKeptKey || n > maxSmallKey && a.msgs.Size == leastWindow {
		a.key = nil
	}
}

// free frees a record of newAnnounced when the message is being fetched or was refused.
func (a *announced) free() {
	w := a.e.w
	a.delist()
	*a = announced{next: w.messages.freeRTS}
	w.messages.freeRTS = a
}

// checkFetchable returns why the data is no longer available; nil if it is.
func (a *announced) checkFetchable(act action) error {
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

// refuse replies to the sender that the data is not needed; its request completes with the
// status.
func (a *announced) refuse(st ucs.Status) {
	if e := a.e; a.id != 0 && e.state <= epClosing && e.msgs == a.msgs {
		e.control(ackControl, a.id, uint64(st))
	}
}

// schemeStages are the stages of a receive that fetches data, by scheme.
type schemeStages [retryByRTR + 1]stage

// retryByRTR is the stage of a receive that could not get the data and requests it by an RTR.
const retryByRTR = proto.Fragments + 1

var fetchStages = newFetchStages("receive", nil, nil)

// newFetchStages makes the stages of receives. Errors contain name. c and settled may be nil.
func newFetchStages(name string, c *class, settled func(*Request)) *schemeStages {
	by := &schemeStages{
		proto.Get:       {role: wireup.RMA, done: (*Request).fetched, usesBuffer: true},
		proto.Put:       {role: wireup.RMA, done: (*Request).arrived, usesBuffer: true, filled: true},
		proto.Fragments: {role: wireup.AM, done: (*Request).arrived},
		retryByRTR:      {role: noRole, done: (*Request).fetched},
	}
	by[proto.Get].fallback = func(r *Request) { r.stage = &by[retryByRTR] }
	by[retryByRTR].post = func(r *Request) error { return r.retryByRTR(by) }
	for i := range by {
		by[i].class, by[i].name, by[i].sized, by[i].fetches, by[i].completed = c, name, true, true, settled
	}
	return by
}

// fetchRecord is the record of a receive that fetches a rendezvous message.
type fetchRecord struct {
	id        uint64 // the sender's id of the message
	n         int    // number of bytes that the receive accepts, if inOrder
	inOrder   bool   // the receive has no buffer: it unpacks the data in order, or gets write it to pieces
	truncated bool   // the message is longer than the receive accepts
}

// fetch transfers the data into the buffer of r, a new receive that
// gone has not refused. r completes when the data is there: with StatusTruncated if it is longer than
// the buffer, which then has the first bytes. fetch does not use the record after it returns.
func (a *announced) fetch(r *Request, by *schemeStages) {
	e := a.e
	*recordOf[fetchRecord](r) = fetchRecord{id: a.id, truncated: a.n > len(r.buf)}
	r.ep, r.buf, r.off = e, r.buf[:min(len(r.buf), a.n)], 0
	if len(r.buf) == 0 {
		a.refuse(ucs.StatusOK)
		r.stage = &by[proto.Fragments]
		r.complete(r.fetchStatus())
		return
	}
	key := a.open(len(r.buf))
	s := e.scheme(r, key)
	r.stage = &by[s]
	e.w.stats.fetched[s].Inc()
	if s == proto.Get && r.getInOneCall(a, key) {
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

// retryByRTR requests the data after a get has failed. Bytes that the get has transferred are
// written again.
func (r *Request) retryByRTR(by *schemeStages) error {
	if r.isAbandoned() {
		r.fail(ucs.StatusCanceled)
		return nil
	}
	if l := r.cached; l != nil {
		r.cached, r.mem = nil, nil
		l.release()
	}
	s := proto.Fragments
	f := recordOf[fetchRecord](r)
	if !f.inOrder { // otherwise the data was for pieces, which accept it in order
		s = r.ep.scheme(r, nil)
	}
	r.stage = &by[s]
	r.moveTo(placeAwaited)
	r.comp.Count++ // r waits for the peer
	r.request(f.id, s)
	return nil
}

// open unpacks the key for the first n bytes of the data. It returns nil if gets cannot read them. It counts a key that
// is not valid; then the data is requested in fragments.
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

// fetchStatus returns the result of a receive whose data has arrived.
func (r *Request) fetchStatus() ucs.Status {
	if recordOf[fetchRecord](r).truncated {
		return ucs.StatusTruncated
	}
	return ucs.StatusOK
}

// startChild starts a child request that its parent r waits for. The child replaces r in
// EP.awaited.
func (r *Request) startChild(child *Request) {
	r.moveTo(placeDelegated)
	child.parent = r
	if child, _ = child.start(); child != nil { // an error of the child is an error of r
		child.Release()
	}
}

// fetched runs when the get of the data has completed or failed.
func (r *Request) fetched() {
	st := r.comp.Status
	if r.flags&reqNoKey != 0 && r.deferFailure(st) {
		return
	}
	if e := r.ep; e.state <= epClosing {
		e.control(ackControl, recordOf[fetchRecord](r).id, uint64(st))
	}
	r.arrived()
}

// arrived completes a receive when no more data arrives.
func (r *Request) arrived() {
	st := r.comp.Status
	if st == ucs.StatusOK {
		st = r.fetchStatus()
	}
	r.complete(st)
}

// rtrRecord is the record of a request that sends an RTR.
type rtrRecord struct {
	id   uint64 // the sender's id of the message
	recv uint64 // id of the receive
	n    int    // length to send, if there is no memory for a put
}

// rtrStage sends an RTR: the sender of the message must put or send its data.
var rtrStage = stage{
	name: "receive", role: wireup.AM, unfenced: true, completed: (*Request).answered, post: (*Request).sendRTR,
}

// request sends an RTR for the message with the sender's id id.
func (r *Request) request(id uint64, s proto.Scheme) {
	r.assignID()
	rtr := r.worker.newRequest(r.ep, &rtrStage)
	q := recordOf[rtrRecord](rtr)
	*q = rtrRecord{id: id, recv: r.remote}
	if s == proto.Put {
		rtr.buf, rtr.mem = r.buf, r.mem
	} else {
		q.n = r.recvLen()
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

// handleData stores a part of the data of a receive.
func (w *Worker) handleData(data []byte, _ uct.Desc) bool {
	var f wire.Frag
	part, ok := f.Unpack(data)
	if !ok {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.connected(f.EP)
	r := w.fetching(e, f.ID)
	if r == nil || f.Offset != uint64(r.off) || len(part) > r.recvLen()-r.off {
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
	if r.off += len(part); r.off == r.recvLen() {
		r.comp.Complete(ucs.StatusOK)
	}
	return false
}

// recvLen returns how much of the data of a message a receive requests, in bytes.
func (r *Request) recvLen() int {
	if f := recordOf[fetchRecord](r); f.inOrder {
		return f.n
	}
	return len(r.buf)
}

// fetching returns the receive for which a peer puts or sends data, by the id in the RTR; nil if there
// is none.
func (w *Worker) fetching(e *EP, id uint64) *Request {
	r := w.pool.remote.Find(id)
	if e == nil || r == nil || r.ep != e || r.place() != placeAwaited || !r.stage.fetches {
		return nil
	}
	return r
}

// handlePutDone completes a receive whose data was put.
func (w *Worker) handlePutDone(c *wire.Control, e *EP) bool {
	r := w.fetching(e, c.ID)
	if r == nil || !r.stage.filled {
		return false
	}
	r.comp.Complete(c.Status())
	return true
}

// scheme chooses the scheme that transfers the data of a message into the buffer of r, and registers the buffer
// if the scheme needs that. key is the key for the data; nil if gets cannot read it.
func (e *EP) scheme(r *Request, key *RKey) proto.Scheme {
	n, i := len(r.buf), e.transport(wireup.RMA)
	to := reach{gettable: key != nil}
	if i != nil && r.mem != nil {
		to.unregisteredAccess = r.mem.In(i.domain) != nil
		to.writable = to.unregisteredAccess && r.mem.Access()&uct.AccessRemoteWrite != 0
		to.registered = !r.mem.AllocatedBy(i.domain)
	}
	to.mayRegister = i != nil && r.mem == nil && i.canRegister(n)
	s, registers := e.chooseScheme(n, to)
	if !registers || r.registerBuffer(i.domain, fetchRights[s]) {
		return s
	}
	to.mayRegister = false
	s, _ = e.chooseScheme(n, to)
	return s
}

// schemeChoice is the scheme that was chosen for n bytes.
type schemeChoice struct {
	n         int
	to        reach
	scheme    proto.Scheme
	registers bool // the buffer must be registered for this scheme
}

// chooseScheme chooses the scheme for n bytes. It caches the latest choice until the lanes change:
// the next message often has the same length, and computing the costs of all schemes takes as many instructions as
// the rest of a rendezvous.
func (e *EP) chooseScheme(n int, to reach) (s proto.Scheme, registers bool) {
	c := &e.messaging().rndv.choice
	if c.n != n || c.to != to || n == 0 {
		v := e.rndvChoices(n, to)
		s = v.Choose(n, e.w.ctx.cfg.rndvScheme())
		*c = schemeChoice{n: n, to: to, scheme: s, registers: v.Registers(s)}
	}
	return c.scheme, c.registers
}

// fetchRights are the access rights that the receiver's buffer needs, by scheme.
var fetchRights = [...]uct.Access{proto.Get: uct.AccessLocalWrite, proto.Put: uct.AccessRemoteWrite}

// rndvChoices returns the schemes that are possible for n bytes, with their costs.
func (e *EP) rndvChoices(n int, to reach) (v proto.Rendezvous) {
	am, rma := e.transport(wireup.AM), e.transport(wireup.RMA)
	v.Message = am.costs().Costs[uct.AMBcopy]
	v.Fragment = proto.Move{Cost: v.Message, Piece: am.sends().data}
	if rma == nil {
		return v
	}
	t := rma.transfers()
	if to.gettable {
		direct, copied := rma.move(&t.get[registered], n, uct.GetShort), rma.move(&t.get[unregistered], n, uct.GetShort)
		if to.dataRegistered {
			direct, copied = rma.remoteRegisteredCost(direct), rma.remoteRegisteredCost(copied)
		}
		switch {
		case to.unregisteredAccess:
			v.Get = direct
		case to.mayRegister && rma.domain.Attr.NeedMemH:
			v.Get = proto.Faster(n, copied, rma.registeredCost(direct, n))
		default:
			v.Get = copied
		}
	}
	put := rma.move(&t.put[unregistered], n, uct.PutShort)
	switch {
	case to.writable && to.registered:
		v.Put = rma.remoteRegisteredCost(put)
	case to.writable:
		v.Put = put
	case to.mayRegister:
		v.Put = rma.registeredCost(rma.remoteRegisteredCost(put), n)
	}
	v.Get, v.Put = e.railMove(v.Get, n), e.railMove(v.Put, n)
	return v
}

// move is the operation by which a transport transfers n bytes of a message.
func (i *iface) move(t *proto.Table, n int, first uct.Variant) proto.Move {
	return moveAt(&i.costs().Costs, t, n, first)
}
