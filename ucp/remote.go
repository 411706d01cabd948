package ucp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Messages of atomics that the target executes; docs/wire.md, "Atomics by the
// target". Fields of both: the receiver's EP at 8, the request at 16.
const (
	requestLen = 56
	answerLen  = 32
)

// sendRemote asks the target to execute the atomic. The operation ends with the
// answer.
func (r *Request) sendRemote() error {
	w, l := r.worker, r.ep.link
	if r.remote == 0 {
		r.remote = w.remote.add(r)
	}
	le := binary.LittleEndian
	b := append(w.msg.b[:0], byte(r.op), r.size, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, l.conn.RemoteEP())
	b = le.AppendUint64(b, r.remote)
	b = le.AppendUint64(b, r.key.packed.region)
	b = le.AppendUint64(b, r.raddr)
	b = le.AppendUint64(b, r.value)
	b = le.AppendUint64(b, r.compare)
	w.msg.b = b
	if _, err := l.use[wireup.AM].am.AMBcopy(amRequest, &w.msg); err != nil {
		return err
	}
	r.flags |= reqPosted
	r.comp.Count++
	return nil
}

// handleRequest executes an atomic for a peer and queues the answer.
func (w *Worker) handleRequest(data []byte, _ uct.Desc) bool {
	le := binary.LittleEndian
	if len(data) != requestLen {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.eps.find(le.Uint64(data[8:]))
	if e == nil || e.state != epOpen || e.link == nil {
		w.stats.badMessages.Inc()
		return false
	}
	a := remoteAtomic{
		op: uct.AtomicOp(data[0]), size: int(data[1]),
		region: le.Uint64(data[24:]), raddr: le.Uint64(data[32:]),
		value: le.Uint64(data[40:]), compare: le.Uint64(data[48:]),
	}
	r := w.newRequest(e, opAnswer)
	r.remote = 0
	r.raddr = le.Uint64(data[16:])
	old, st := w.ctx.regions.execute(&a)
	r.word, r.value = old, uint64(st)
	if r, _ = r.start(); r != nil {
		r.Release()
	}
	return false
}

// remoteAtomic is an atomic that a peer asks for.
type remoteAtomic struct {
	op                            uct.AtomicOp
	size                          int
	region, raddr, value, compare uint64
}

// execute does an atomic for a peer, after checking that it may.
func (t *regionTable) execute(a *remoteAtomic) (old uint64, st ucs.Status) {
	if a.size != 4 && a.size != 8 || a.op > uct.AtomicCSwap {
		return 0, ucs.StatusRemoteInvalid
	}
	m := t.find(a.region)
	if m == nil || m.access&uct.AccessRemoteAtomic == 0 {
		return 0, ucs.StatusRemoteAccess
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	off, n := a.raddr-m.addr, uint64(len(m.bytes))
	if m.closed || a.raddr < m.addr || off > n || uint64(a.size) > n-off {
		return 0, ucs.StatusRemoteAccess
	}
	word := m.bytes[off : off+uint64(a.size)]
	if !aligned(word) {
		return 0, ucs.StatusRemoteInvalid
	}
	return applyAtomic(word, a.op, a.compare, a.value), ucs.StatusOK
}

// sendAnswer sends the result of an atomic back.
func (r *Request) sendAnswer() error {
	w, l := r.worker, r.ep.link
	le := binary.LittleEndian
	b := append(w.msg.b[:0], byte(r.value), 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, l.conn.RemoteEP())
	b = le.AppendUint64(b, r.raddr)
	b = le.AppendUint64(b, r.word)
	w.msg.b = b
	_, err := l.use[wireup.AM].am.AMBcopy(amAnswer, &w.msg)
	return err
}

// handleAnswer ends an atomic that the target has executed.
func (w *Worker) handleAnswer(data []byte, _ uct.Desc) bool {
	le := binary.LittleEndian
	if len(data) != answerLen {
		w.stats.badMessages.Inc()
		return false
	}
	r := w.remote.find(le.Uint64(data[16:]))
	if r == nil || r.ep.id != le.Uint64(data[8:]) || r.flags&reqPosted == 0 {
		w.stats.badMessages.Inc()
		return false
	}
	w.remote.take(r.remote)
	r.remote = 0
	r.word = le.Uint64(data[24:])
	st := ucs.Status(data[0])
	if st < 0 || st.Err() == ucs.ErrInternal {
		st = ucs.StatusInternal
	}
	r.comp.Complete(st)
	return false
}
