package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucs"
)

// TagMessage is a message that arrived before a receive for it was posted. [Worker.TagProbe] returns it to
// a caller, which must receive or release it. It belongs to the goroutine that owns the worker.
type TagMessage struct {
	node match.Msg[*TagMessage] // in Worker.tag.table until the message is received, removed or dropped

	w     *Worker
	msgs  *messages // the window to which the message is charged
	from  *EP
	n     int         // length of the message
	place tuple.Place // position in the sender's sequence, if messages may be sent again; see package tuple
	buf   []byte      // from the worker's buffers: the data or, for a rendezvous message, the key
	sync  uint64      // id for the acknowledgment; 0 if the sender does not wait for one

	in        *inbound   // not nil while fragments are missing
	rndv      *announced // not nil if the data is at the sender
	lost      ucs.Status // status with which the missing part failed
	released  bool       // the user has released it while fragments are missing
	uncharged bool       // offered out of turn, and not charged

	next, prev *TagMessage // in tagMessages.unexpected while it is in the table; otherwise in Worker.tag.idle
}

// maxIdleMessages is the maximum length of the free list of TagMessages.
const maxIdleMessages = 1024

// newTagMessage returns a TagMessage for n bytes.
func (w *Worker) newTagMessage(e *EP, tag uint64, n int) *TagMessage {
	u := w.tag.idle
	if u == nil {
		u = &TagMessage{w: w}
		u.node.Owner = u
	} else {
		w.tag.idle = u.next
		w.tag.idleCount--
	}
	u.node.Tag, u.msgs, u.from, u.n = tag, e.msgs, e, n
	return u
}

// storeUnexpected adds a message to the unexpected messages.
func (u *TagMessage) storeUnexpected() {
	u.w.tag.table.Keep(&u.node)
	u.msgs.tag.unexpected.add(u)
}

// unlink is called when the message was removed from the table.
func (u *TagMessage) unlink() *TagMessage {
	u.msgs.tag.unexpected.remove(u)
	if u.msgs.closed {
		u.msgs.leftFewer(u)
	}
	return u
}

// storeEager stores an eager message that arrived in one piece.
func (w *Worker) storeEager(e *EP, tag uint64, data []byte, sync uint64) {
	u := w.newTagMessage(e, tag, len(data))
	u.sync = sync
	u.buf = w.messages.buffers.get(len(data))
	copy(u.buf, data)
	u.storeUnexpected()
}

// storeAnnounced stores a message whose data is at the sender.
func (w *Worker) storeAnnounced(e *EP, tag uint64, a *announced) {
	w.newAnnouncedTag(e, tag, a).storeUnexpected()
}

// newAnnouncedTag returns a TagMessage for a message whose data is at the sender.
func (w *Worker) newAnnouncedTag(e *EP, tag uint64, a *announced) *TagMessage {
	a.dropLongKey()
	u := w.newTagMessage(e, tag, a.n)
	u.rndv, u.uncharged, a.owner, u.buf = a, false, u, w.messages.buffers.get(len(a.key))
	copy(u.buf, a.key)
	a.key = u.buf
	return u
}

// free frees a message that is in no table and has no missing part.
func (u *TagMessage) free() {
	w := u.w
	w.messages.buffers.put(u.buf)
	u.msgs, u.from, u.buf, u.in, u.rndv = nil, nil, nil, nil, nil
	u.sync, u.lost, u.released = 0, ucs.StatusOK, false
	if w.tag.idleCount < maxIdleMessages {
		w.tag.idleCount++
		u.next, w.tag.idle = w.tag.idle, u
	}
}

// charge returns how many bytes the sender was charged for the message, without messageCharge.
func (u *TagMessage) charge() int {
	switch {
	case u.rndv == nil:
		return u.n
	case u.uncharged:
		return -messageCharge
	}
	return 0
}

// done frees a message that was received or is dropped: it returns the charge, and acknowledges the
// message if the sender waits.
func (u *TagMessage) done(st ucs.Status) {
	m := u.msgs
	switch {
	case u.rndv != nil:
		m.received(u.charge())
		u.rndv.refuse(st)
		u.rndv.free()
	case u.sync != 0:
		m.received(u.n)
		m.acknowledge(u.sync, st)
	default:
		m.received(u.n)
	}
	u.free()
}

// info describes the message.
func (u *TagMessage) info() TagInfo {
	return TagInfo{Tag: u.node.Tag, Length: u.n, From: u.from}
}

// recv receives a message that is not in the table into buf.
func (u *TagMessage) recv(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	if u.in != nil || u.rndv != nil {
		return u.deliverTo(u.w.newTagRecv(buf, info, p).recv)
	}
	if info != nil {
		*info = u.info()
	}
	n := u.n
	copy(buf, u.buf)
	u.done(ucs.StatusOK)
	if n > len(buf) {
		return nil, recvError(len(buf), ucs.ErrTruncated)
	}
	return nil, nil
}

// deliverTo delivers the message to a receive that has a request.
func (u *TagMessage) deliverTo(v *tagRecv) (*Request, error) {
	u.deliver(v)
	return v.req.started()
}

// deliver is deliverTo without a result. The caller owns the request.
func (u *TagMessage) deliver(v *tagRecv) {
	switch {
	case u.rndv != nil:
		u.deliverAnnounced(v)
	case u.in != nil:
		v.tag = u.node.Tag
		v.write(0, u.buf[:u.in.got])
		u.in.sink = v
		u.free()
	default:
		v.write(0, u.buf)
		from, tag, n := u.from, u.node.Tag, u.n
		u.done(ucs.StatusOK)
		v.completeWith(from, tag, n)
	}
}

// write implements sink.
func (u *TagMessage) write(off int, data []byte) { copy(u.buf[off:], data) }

// complete implements sink.
func (u *TagMessage) complete(*inbound) {
	u.in = nil
	if u.released {
		u.done(ucs.StatusCanceled)
	}
}

// fail implements sink.
func (u *TagMessage) fail(_ *inbound, st ucs.Status) {
	u.in = nil
	u.failRest(st)
}

// withdrawn implements announcedOwner. A message that the user has removed from the table cannot be
// withdrawn.
func (u *TagMessage) withdrawn() bool {
	if !u.w.tag.table.Remove(&u.node) {
		return false
	}
	u.unlink().done(ucs.StatusCanceled)
	return true
}

// failRest drops a message whose missing part cannot arrive. A message that the user has removed from the table remains
// until the user receives or releases it.
func (u *TagMessage) failRest(st ucs.Status) {
	switch {
	case u.w.tag.table.Remove(&u.node):
		u.unlink().done(st)
	case u.released:
		u.done(st)
	default:
		u.lost = st
	}
}

// tagList is the unexpected messages of one sender, the oldest first.
type tagList struct{ first, last *TagMessage }

func (l *tagList) add(u *TagMessage) {
	u.prev, u.next = l.last, nil
	if l.last == nil {
		l.first = u
	} else {
		l.last.next = u
	}
	l.last = u
}

func (l *tagList) remove(u *TagMessage) {
	if u.prev == nil {
		l.first = u.next
	} else {
		u.prev.next = u.next
	}
	if u.next == nil {
		l.last = u.prev
	} else {
		u.next.prev = u.prev
	}
	u.prev, u.next = nil, nil
}

// loseAnnounced drops the rendezvous messages that no receive has matched, because their data can no
// longer be fetched. m may be nil.
func (m *messages) loseAnnounced(st ucs.Status) {
	if m == nil {
		return
	}
	for u := m.tag.unexpected.first; u != nil; {
		next := u.next
		if u.rndv != nil {
			u.failRest(st)
		}
		u = next
	}
}

// trimLeft drops the oldest unreceived messages of a peer's closed EPs, until the peer's
// connected EPs can use the memory.
func (w *Worker) trimLeft(uuid uint64) {
	room := w.leftRoom(uuid)
	for m := w.tag.leftFirst; m != nil && w.messages.leftOf[uuid] > room; {
		next := m.tag.next
		if m.e.peer.Addr.UUID() == uuid {
			for m.tag.unexpected.first != nil && w.messages.leftOf[uuid] > room {
				m.dropFirst()
			}
		}
		m = next
	}
}
