package ucp

import (
	"context"
	"math"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// If a connection has only one lane, which notifies and carries messages (link.ordered), the word
// is posted with the last piece of the data. A word of more than 32 bits is sent in a message after
// the data and a fence. So all words of such a connection arrive in order. On other connections the
// lanes are flushed between the data and the word.
var (
	notifyStage = stage{
		class: &keyClass, name: "put", sized: true, role: wireup.RMA, post: (*Request).putNotify, done: (*Request).dataPut,
		tryCancel: unposted, steps: true,
	}
	notifyOrderStage = stage{
		class: &keyClass, name: "notification", role: noRole, post: (*Request).flushLanes, done: (*Request).dataThere, steps: true,
	}
	notifyWordStage = stage{class: &keyClass, name: "notification", role: wireup.AM, post: (*Request).sendWord}
)

// notifyRecord is the state of a put with notification.
type notifyRecord struct {
	word uint64
}

// notification returns the word of a put with notification.
func (r *Request) notification() uint64 { return recordOf[notifyRecord](r).word }

// PutNotify is Put, and then notifies the peer's worker with word; see
// [Worker.OnNotify]. The notification arrives when all of the data is visible at the peer, and not
// at all if the put fails. No [EP.Fence] is needed. (A message that is sent after a plain Put may
// arrive before the data, because the two may use different transports.) buf may be empty. Errors: as Put; ErrUnsupported
// also if no transport of both sides has active messages; ErrInvalidParam if p has flags.
func (e *EP) PutNotify(buf []byte, raddr uint64, key *RKey, word uint64, p *OpParams) (*Request, error) {
	a := action{stage: &notifyStage, n: len(buf)}
	if p.flags() != 0 {
		return nil, e.permitsNoFlags(a)
	}
	if !e.peer.Best[wireup.AM].OK && e.state == epOpen {
		return nil, e.wrong(a, ucs.ErrUnsupported, e.w.unreachable(wireup.AM, e.peer.Addr))
	}
	r, err := e.transfer(&notifyStage, uct.AccessRemoteWrite, buf, raddr, key, p)
	if err != nil {
		return nil, err
	}
	if r == nil { // there is no data, only the word
		r = e.w.newRequest(e, &notifyStage)
		r.target, r.onDone = peerRange{key, raddr}, p.onDone()
	}
	*recordOf[notifyRecord](r) = notifyRecord{word}
	return r.start()
}

// PutNotifyWait is PutNotify, and returns when buf belongs to the caller again and the notification was
// sent. If ctx is done first: as [EP.PutWait].
func (e *EP) PutNotifyWait(ctx context.Context, buf []byte, raddr uint64, key *RKey, word uint64, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.PutNotify(buf, raddr, key, word, p)
	return e.w.finishBlocking(ctx, r, err)
}

// putNotify posts the data. If the lane carries both, it also posts the word behind the data.
func (r *Request) putNotify() error {
	x := r.ep.link.ordered()
	if r.off == 0 {
		r.flags &^= reqLaneLost
	}
	if x != nil && r.notification() <= math.MaxUint32 {
		return r.putWithWord(x)
	}
	if err := postPut(r); err != nil || x == nil {
		return err
	}
	if err := x.EP.Fence(); err != nil {
		return err
	}
	if err := r.sendWord(); err != nil {
		return err
	}
	r.stage = &notifyWordStage // nothing else remains to be posted
	return nil
}

// putWithWord posts the data, with the word in the last piece.
func (r *Request) putWithWord(x *lane) error {
	var err error
	if r.off < len(r.buf) {
		err = r.move(putTables, &notifyCalls)
	} else if err = x.EP.Fence(); err == nil {
		err = x.Notify.NotifyBcopy(nil, 0, 0, uint32(r.notification()))
	}
	if err == nil {
		r.stage = &notifyWordStage // nothing else remains to be posted
	}
	return err
}

// notifyCalls is putCalls, but the last piece contains the word.
var notifyCalls = calls{proto.None: noCall, proto.Short: notifyBcopy, proto.Bcopy: notifyBcopy, proto.Zcopy: notifyZcopy}

func notifyBcopy(r *Request, l *lane, key uct.RKey, n int) error {
	if r.off+n < len(r.buf) {
		return putBcopy(r, l, key, n)
	}
	if err := r.behindPieces(l); err != nil {
		return err
	}
	buf, raddr := r.part(n)
	return l.Notify.NotifyBcopy(buf, raddr, key, uint32(r.notification()))
}

func notifyZcopy(r *Request, l *lane, key uct.RKey, n int) error {
	if r.off+n < len(r.buf) {
		return putZcopy(r, l, key, n)
	}
	if err := r.behindPieces(l); err != nil {
		return err
	}
	iov, raddr := r.piece(l, n)
	r.comp.Count++
	return r.recordPost(l.Notify.NotifyZcopy(iov, raddr, key, uint32(r.notification()), &r.comp))
}

// behindPieces orders the last piece, which contains the word, after the pieces before it.
func (r *Request) behindPieces(l *lane) error {
	if r.off == 0 {
		return nil
	}
	return l.EP.Fence()
}

// dataPut is called when the posted data is complete at this side.
func (r *Request) dataPut() { r.startNext(&notifyOrderStage) }

// dataThere is called after the flush: the data is visible at the peer, unless a lane broke that
// may have carried a part of it.
func (r *Request) dataThere() {
	if l := r.ep.link; l != nil && r.flags&reqLaneLost != 0 {
		r.fail(l.lanes.LastLost())
	}
	r.startNext(&notifyWordStage)
}

func (r *Request) sendWord() error {
	w, l := r.worker, r.ep.link
	m := wire.Notify{EP: l.conn.MessageEP(), Word: r.notification()}
	w.msg.b = m.Append(w.msg.b[:0])
	_, err := l.lanes.Use[wireup.AM].AM.AMBcopy(wire.AMNotify, &w.msg)
	return err
}

// OnNotify sets f, which Progress calls with the word of each [EP.PutNotify] of a peer, when the
// data is visible to the caller. ep is the connection on which the word arrived. Words of one
// connection arrive in the order of the puts if the peer starts each put after the one before is
// complete. f may start operations, also on ep, and must not call Progress. A nil f removes the callback;
// words without a callback are dropped and counted as bad messages, so call OnNotify before peers get the
// worker's address.
func (w *Worker) OnNotify(f func(ep *EP, word uint64)) { w.rma.onNotify = f }

// notified is an EP as the handler of words that arrive with puts.
type notified EP

// HandleNotify implements uct.NotifyHandler.
func (n *notified) HandleNotify(word uint32) { n.w.deliverWord((*EP)(n), uint64(word)) }

// handleNotify handles a word that arrives in a message.
func (w *Worker) handleNotify(data []byte, _ uct.Desc) bool {
	var m wire.Notify
	e := (*EP)(nil)
	if m.Unpack(data) {
		e = w.eps.Find(m.EP)
	}
	w.deliverWord(e, m.Word)
	return false
}

// deliverWord calls the OnNotify callback.
func (w *Worker) deliverWord(e *EP, word uint64) {
	if e == nil || !e.receives() || e.link == nil || w.rma.onNotify == nil {
		w.stats.badMessages.Inc()
		return
	}
	w.rma.onNotify(e, word)
}
