package ucp

import (
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// withAnnouncements makes the stage that announces messages of a channel.
func withAnnouncements(c *channel) *channel {
	s := &c.announce
	*s = c.pieces
	s.post, s.announces, s.usesBuffer = (*Request).sendRTS, true, true
	c.rndvFrom = (*messages).rndvFrom
	return c
}

// sendRTS announces the message. The buffer belongs to gucx until the peer replies that it no longer needs
// it.
func (r *Request) sendRTS() error {
	x, w, m := r.ep.lane(wireup.AM), r.worker, r.msg
	r.assignID()
	h := wire.Head{Word: m.word, EP: r.ep.link.conn.MessageEP()}
	room := x.Iface.attr.AM.MaxBcopy - wire.HeadLen - wire.RTSLen - len(m.header)
	if room < 0 {
		return ucs.ErrTooLong
	}
	rts := r.rts(room)
	w.msg.b = append(rts.Append(h.Append(w.msg.b[:0])), m.header...)
	if _, err := x.AM.AMBcopy(m.ch.rts, &w.msg); err != nil {
		return err
	}
	r.flags |= reqPosted
	w.stats.announcedBy(r)
	r.awaitPeer()
	return nil
}

// rts returns the RTS of the message. It contains the key of the data if the peer may get the data and the
// key has at most room bytes.
func (r *Request) rts(room int) wire.RTS {
	rts := wire.RTS{ID: r.remote, Length: uint64(r.total())}
	if r.gettable() {
		if key := r.mem.Key(); len(key) <= room {
			rts.Addr, rts.Key = r.mem.AddrOf(r.buf), key
		}
	}
	return rts
}

// announcedAtOnce announces a message of the channel without a header, with p.Mem, like sendRTS, in one call: the request is in no
// list and no queue. It does so if the peer gets the data from memory that the transport allocated, and no other message waits.
// Otherwise it returns nil. Messages must be bound, and the length at least rndvFrom.
func (m *messages) announcedAtOnce(c *channel, tag uint64, buf []byte, p *OpParams) *Request {
	e, w, mem := m.e, m.e.w, (*region.Mem)(p.Mem)
	i, preferred := e.transport(wireup.RMA), w.ctx.cfg.rndvScheme()
	switch {
	case i == nil || !mem.AllocatedBy(i.domain) || !mem.Covers(buf) || mem.Access()&uct.AccessRemoteRead == 0:
		return nil
	case preferred != proto.Auto && preferred != proto.Get:
		return nil
	case len(mem.Key()) > e.lane(wireup.AM).Iface.attr.AM.MaxBcopy-wire.HeadLen-wire.RTSLen || !m.Afford(charge(0), window.Reserve(m.Most)):
		return nil
	}
	r := w.newMessage(e, c, tag, buf, p)
	r.assignID()
	h, rts := wire.Head{Word: tag, EP: m.name}, wire.RTS{ID: r.remote, Length: uint64(len(buf)), Addr: mem.AddrOf(buf), Key: mem.Key()}
	w.msg.b = rts.Append(h.Append(w.msg.b[:0]))
	if _, err := m.am.AMBcopy(c.rts, &w.msg); err != nil {
		m.Credit += charge(0)
		w.pool.remote.Remove(r.remote)
		w.recycle(r)
		return nil
	}
	r.msg.charged, r.stage, r.flags = charge(0), &c.announce, reqPosted|placeAwaited
	e.awaited.add(r)
	w.stats.announcedBy(r)
	r.armOnDone()
	return r
}

// gettable reports whether the peer may get the data of the message. It registers data that the caller
// has not registered if that is faster.
func (r *Request) gettable() bool {
	i, n, preferred := r.ep.transport(wireup.RMA), len(r.buf), r.worker.ctx.cfg.rndvScheme()
	switch {
	case i == nil || n == 0 || preferred != proto.Auto && preferred != proto.Get:
		return false
	case r.mem == nil:
		return i.canRegister(n) && r.ep.offers(n, offerCached) && r.registerBuffer(i.domain, uct.AccessRemoteRead)
	case r.mem.Access()&uct.AccessRemoteRead == 0 || r.mem.In(i.domain) == nil:
		return false
	}
	return r.mem.AllocatedBy(i.domain) || r.ep.offers(n, offerRegistered)
}

// Values of the parameter cached of offers: who has registered the memory of the data. Memory that a domain has allocated is
// always offered.
const (
	offerRegistered = false // by the caller
	offerCached     = true  // for the message
)

// offers reports whether the peer should get n bytes rather than receive them in messages: it is configured, or
// takes less time.
func (e *EP) offers(n int, cached bool) bool {
	i, preferred := e.transport(wireup.RMA), e.w.ctx.cfg.rndvScheme()
	v := e.rndvChoices(n, reach{gettable: true, unregisteredAccess: true, dataRegistered: true})
	if cached {
		v.Get = i.registeredCost(v.Get, n)
	}
	v.Put.Piece = 0
	return v.Choose(n, preferred) == proto.Get
}

// handleRTR puts or sends the data of a message, as the receiver requested.
func (w *Worker) handleRTR(data []byte, _ uct.Desc) bool {
	var m wire.RTR
	if !m.Unpack(data) {
		w.stats.badMessages.Inc()
		return false
	}
	r := w.sent(w.connected(m.EP), m.ID)
	if r == nil || !r.stage.announces || m.Length > uint64(r.total()) {
		w.stats.badMessages.Inc()
		return false
	}
	r.startChild(r.reply(&m))
	return false
}

// dataRecord is the record of a request that puts or sends the data of a message.
type dataRecord struct {
	recv uint64 // the peer's id of the receive
	n    int    // length that the receive accepts
}

// reply starts the request that puts or sends the data of the message.
func (r *Request) reply(m *wire.RTR) *Request {
	child := r.worker.newRequest(r.ep, &dataStage)
	*recordOf[dataRecord](child) = dataRecord{recv: m.Recv, n: int(m.Length)}
	key, d := r.ep.target(m), r.data()
	if d != nil {
		if key != nil && !child.putPieces(d, m.Addr, int(m.Length), key) {
			keyDone(key)
		}
		return child
	}
	child.buf, child.mem = r.buf[:m.Length], r.mem
	if key != nil {
		child.stage, child.target = &putDataStage, peerRange{key, m.Addr}
		if child.mem == nil && len(child.buf) > 0 {
			child.registerLocal(putTables, uct.PutShort, 0)
		}
	}
	return child
}

// target unpacks the key of the receiver's memory for a put; nil if the data must be
// sent in fragments, which every receiver accepts.
func (e *EP) target(m *wire.RTR) *RKey {
	if len(m.Key) == 0 || !e.reachable(wireup.RMA) {
		return nil
	}
	key, err := e.msgs.unpack(m.Key)
	if err != nil {
		return nil
	}
	if key.denies(m.Addr, int(m.Length), uct.AccessRemoteWrite) != "" {
		e.w.stats.badMessages.Inc()
		keyDone(key)
		return nil
	}
	return key
}

// dataStage sends the data of a message for its parent request. Later messages
// do not wait for it.
var dataStage = stage{
	class: &keyClass, name: "send", sized: true, role: wireup.AM, post: (*Request).sendData, unfenced: true, shares: true,
}

// sendData sends the rest of the data, fragment by fragment. Request.off is the length sent so far.
func (r *Request) sendData() error {
	x, w := r.ep.lane(wireup.AM), r.worker
	piece := x.Iface.sends().data
	d := recordOf[dataRecord](r)
	f := wire.Frag{EP: r.ep.link.conn.MessageEP(), ID: d.recv}
	for r.off < d.n {
		n := min(d.n-r.off, piece)
		f.Offset = uint64(r.off)
		w.msg.b = f.Append(w.msg.b[:0])
		if err := r.sendPart(x, wire.AMData, w.msg.b, r.off, n); err != nil {
			return err
		}
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// Stages that put the data of a message for its parent request. They post the notification of the receiver directly after
// the put if one lane carries both in order. Otherwise they post it after a flush of the lanes.
var (
	putDataStage = stage{
		class: &keyClass, name: "send", sized: true, role: wireup.RMA, choose: (*Request).chooseRails, split: &putDataSplitStage,
		post: (*Request).putData, done: (*Request).dataPosted, completed: (*Request).dataMoved, steps: true, unfenced: true,
	}
	// putDataSplitStage does the same over several lanes.
	putDataSplitStage = stage{
		class: &keyClass, name: "send", sized: true, role: wireup.RMA, post: (*Request).postSplit, part: &putPartStage,
		share: (*Config).rndvSharing, done: (*Request).dataPosted, completed: (*Request).dataMoved,
		usesBuffer: true, steps: true, unfenced: true,
	}
	putToldStage  = stage{class: &keyClass, name: "send", sized: true, role: wireup.RMA, completed: (*Request).dataMoved, unfenced: true}
	putOrderStage = stage{
		class: &keyClass, name: "send", sized: true, role: noRole, post: (*Request).flushLanes, done: (*Request).dataArrived,
		completed: (*Request).dataMoved, steps: true, unfenced: true,
	}
)

// putData puts the data, and notifies the receiver behind it if possible.
func (r *Request) putData() error {
	x := r.ep.link.ordered()
	post := postPut
	if r.pieces != nil {
		post = postPutPieces
	}
	if err := post(r); err != nil {
		return r.markMissingKey(r.ep.link.lanes.Use[wireup.RMA], err)
	}
	if x == nil || r.comp.Status != ucs.StatusOK {
		return nil
	}
	if err := x.EP.Fence(); err != nil {
		return err
	}
	if err := r.ep.sendControl(x, wire.AMPutDone, recordOf[dataRecord](r).recv, uint64(ucs.StatusOK)); err != nil {
		return err
	}
	r.stage = &putToldStage // the receiver needs no further message
	return nil
}

func postPutPieces(r *Request) error { return r.moveList(&putList) }

// Data that was put and not flushed is put again if a lane breaks, or sent if the remaining
// lane does not reach the memory.
func init() {
	putDataSplitStage.again, putOrderStage.again = &putDataStage, &putDataStage
	putDataStage.fallback, putDataSplitStage.fallback = (*Request).sendByCopy, (*Request).sendByCopy
}

// sendByCopy sends the data that could not be put, including what a put has written already.
func (r *Request) sendByCopy() {
	n := len(r.buf)
	if r.pieces != nil {
		n = r.pieces.len()
	}
	r.dataMoved()
	r.stage, r.target = &dataStage, peerRange{}
	recordOf[dataRecord](r).n = n
}

// dataPosted runs when the put no longer needs the buffer, or has failed.
func (r *Request) dataPosted() {
	if r.comp.Status != ucs.StatusOK {
		r.dataArrived()
		return
	}
	r.startNext(&putOrderStage)
}

// dataArrived notifies the receiver that the data has arrived, or will not arrive.
func (r *Request) dataArrived() {
	st, l := r.comp.Status, r.ep.link
	lost := st == ucs.StatusOK && l != nil && r.flags&reqLaneLost != 0 // data that was put and not flushed
	if lost {
		st = ucs.StatusCanceled // the lane broke for a reason that is not about this put
	}
	if r.deferFailure(st) {
		return
	}
	if lost {
		st = l.lanes.LastLost()
	}
	if e := r.ep; e.state <= epClosing {
		e.control(putDoneControl, recordOf[dataRecord](r).recv, uint64(st))
	}
	r.complete(st)
}

// dataMoved releases the key and the registration of a put or get of the data of a message.
func (r *Request) dataMoved() {
	r.closeKey()
	if x := r.pieces; x != nil {
		r.pieces = nil
		r.worker.freePieces(x)
	}
}

// putPieces makes a request put the data of its parent, which is in pieces, to the receiver's memory.
// It returns false if the data must be sent.
func (r *Request) putPieces(d *data.Buffer, addr uint64, n int, key *RKey) bool {
	x := r.ep.pieces(d, n, &putList)
	if x == nil {
		return false
	}
	r.stage, r.target, r.pieces = &putDataStage, peerRange{key, addr}, x
	return true
}
