package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// rmaState is the state of a worker for puts, gets and atomics.
type rmaState struct {
	scratch  uint64                    // result of a blocking atomic
	staged   []byte                    // buffer for a get that may be abandoned; nil while a get uses it
	onNotify func(ep *EP, word uint64) // may be nil
}

// rmaProtocol implements atomics that the target executes, and puts with notification.
var rmaProtocol = protocol{
	handlers: func(w *Worker) []handler {
		return []handler{
			{wire.AMRequest, uct.AMHandlerFunc(w.handleRequest)},
			{wire.AMAnswer, uct.AMHandlerFunc(w.handleAnswer)},
			{wire.AMNotify, uct.AMHandlerFunc(w.handleNotify)},
		}
	},
	laneOpened: func(e *EP, x *lane) {
		if x.Notify != nil {
			x.Notify.SetNotifyHandler((*notified)(e.notificationEP()))
		}
	},
}

// sendRemote sends the atomic to the target, which executes it. The operation completes with the
// reply.
func (r *Request) sendRemote() error {
	w, l, a := r.worker, r.ep.link, recordOf[atomicRecord](r)
	if r.remote == 0 {
		r.remote = w.pool.remote.Add(r)
	}
	m := wire.Request{
		Op: r.atomic.op, Size: r.atomic.size, EP: l.conn.MessageEP(), ID: r.remote,
		Region: r.target.key.packed.Region, Addr: r.target.addr, Value: a.value, Compare: a.compare,
	}
	w.msg.b = m.Append(w.msg.b[:0])
	if _, err := l.lanes.Use[wireup.AM].AM.AMBcopy(wire.AMRequest, &w.msg); err != nil {
		return err
	}
	r.flags |= reqPosted
	r.comp.Count++
	return nil
}

// handleRequest executes an atomic for a peer and sends the result.
func (w *Worker) handleRequest(data []byte, _ uct.Desc) bool {
	var m wire.Request
	if !m.Unpack(data) {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.eps.Find(m.EP)
	if e == nil || !e.receives() || e.link == nil {
		w.stats.badMessages.Inc()
		return false
	}
	r := w.newRequest(e, &answerStage)
	old, st := w.ctx.memory.Execute(&m)
	*recordOf[answerRecord](r) = answerRecord{id: m.ID, old: old, status: st}
	if r, _ = r.start(); r != nil {
		e.answerDue()
		r.Release()
	}
	return false
}

// answerRecord is the result of an atomic for a peer.
type answerRecord struct {
	id     uint64 // id of the request at the peer
	old    uint64
	status ucs.Status
}

// answerStage sends a peer the result of its atomic.
var answerStage = stage{
	name: "answer", role: wireup.AM, post: (*Request).sendAnswer, completed: (*Request).answered, unfenced: true,
}

// sendAnswer sends the result of an atomic.
func (r *Request) sendAnswer() error {
	w, l, a := r.worker, r.ep.link, recordOf[answerRecord](r)
	m := wire.Answer{Status: a.status, EP: l.conn.MessageEP(), ID: a.id, Value: a.old}
	w.msg.b = m.Append(w.msg.b[:0])
	_, err := l.lanes.Use[wireup.AM].AM.AMBcopy(wire.AMAnswer, &w.msg)
	return err
}

// handleAnswer completes an atomic that the target has executed.
func (w *Worker) handleAnswer(data []byte, _ uct.Desc) bool {
	var m wire.Answer
	if !m.Unpack(data) {
		w.stats.badMessages.Inc()
		return false
	}
	r := w.pool.remote.Find(m.ID)
	if r == nil || r.ep.id != m.EP || !r.stage.opped || r.flags&reqPosted == 0 {
		w.stats.badMessages.Inc()
		return false
	}
	w.pool.remote.Remove(r.remote)
	r.remote, r.old.word = 0, m.Value
	r.comp.Complete(m.Status)
	return false
}
