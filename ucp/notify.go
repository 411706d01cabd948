package ucp

import (
	"context"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A put with notification posts the data, a fence and the word where one lane carries all
// of them. Otherwise it flushes the lanes between data and word.
var (
	notifyStage = stage{
		name: "put", sized: true, role: wireup.RMA, post: (*Request).putNotify, done: (*Request).dataPut,
		stop: unposted, steps: true,
	}
	notifyOrderStage = stage{
		name: "notification", role: noRole, post: (*Request).flushLanes, done: (*Request).dataThere, steps: true,
	}
	notifyWordStage = stage{name: "notification", role: wireup.AM, post: (*Request).sendWord}
)

// PutNotify is Put after which the peer's worker gets word as an event; see
// [Worker.OnNotify]. The event comes when all of the data is visible at the peer, and not
// at all if the put fails. buf may be empty. Errors: as Put; ErrUnsupported also if no
// transport of both sides has active messages.
func (e *EP) PutNotify(buf []byte, raddr uint64, key *RKey, word uint64, p *OpParams) (*Request, error) {
	if !e.peer.Best[wireup.AM].OK && e.state == epOpen {
		a := action{stage: &notifyStage, n: len(buf)}
		return nil, e.wrong(a, ucs.ErrUnsupported, e.w.unreachable(wireup.AM, e.peer.Addr))
	}
	r, err := e.transfer(&notifyStage, uct.AccessRemoteWrite, buf, raddr, key, p)
	if err != nil {
		return nil, err
	}
	if r == nil { // no data, but a word
		r = e.w.newRequest(e, &notifyStage)
		r.raddr, r.key, r.onDone = raddr, key, p.onDone()
	}
	r.value = word
	return r.start()
}

// PutNotifyWait is PutNotify that returns when buf is the caller's again and the word is
// on its way. If ctx ends first: as [EP.PutWait].
func (e *EP) PutNotifyWait(ctx context.Context, buf []byte, raddr uint64, key *RKey, word uint64, p *OpParams) error {
	r, err := e.PutNotify(buf, raddr, key, word, p)
	return finish(ctx, r, err)
}

// putNotify posts the data, and the word behind it if the lane carries both.
func (r *Request) putNotify() error {
	if err := postPut(r); err != nil {
		return err
	}
	x := r.ep.link.only()
	if x == nil || x != r.ep.lane(wireup.AM) {
		return nil
	}
	if err := x.EP.Fence(); err != nil {
		return err
	}
	if err := r.sendWord(); err != nil {
		return err
	}
	r.stage = &notifyWordStage // nothing of that is left
	return nil
}

// dataPut runs when what was posted of the data has ended at this side.
func (r *Request) dataPut() { r.goOn(&notifyOrderStage) }

// dataThere runs when the data is at the peer.
func (r *Request) dataThere() { r.goOn(&notifyWordStage) }

// goOn goes to the next stage, unless the request has failed or was given up.
func (r *Request) goOn(next *stage) {
	st := r.comp.Status
	if st == ucs.StatusOK {
		st = r.stopped()
	}
	if st != ucs.StatusOK || r.Done() {
		r.settle(st)
		return
	}
	r.stage, r.lane = next, 0
	r.flags = r.flags&^reqPosted | reqAhead
	r.comp.Count = 1
	r.launch()
}

// sendWord sends the word.
func (r *Request) sendWord() error {
	w, l := r.worker, r.ep.link
	m := wire.Notify{EP: l.conn.RemoteEP(), Word: r.value}
	w.msg.b = m.Append(w.msg.b[:0])
	_, err := l.lanes.Use[wireup.AM].AM.AMBcopy(wire.AMNotify, &w.msg)
	return err
}

// OnNotify has f called for each word that a [EP.PutNotify] of a peer brings, from
// Progress, when the data is visible to the caller. ep is the connection that it came over;
// words of one come in the order in which the peer put them if it does not put the next
// before the last has ended. f may start operations, on ep too, and must not call Progress.
// Without f words are dropped and counted as bad messages: call it before peers get the
// worker's address. nil takes it back.
func (w *Worker) OnNotify(f func(ep *EP, word uint64)) { w.onNotify = f }

// handleNotify hands a word over.
func (w *Worker) handleNotify(data []byte, _ uct.Desc) bool {
	var m wire.Notify
	e := (*EP)(nil)
	if m.Unpack(data) {
		e = w.eps.Find(m.EP)
	}
	if e == nil || e.state != epOpen || e.link == nil || w.onNotify == nil {
		w.stats.badMessages.Inc()
		return false
	}
	w.onNotify(e, m.Word)
	return false
}
