package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucs"
)

// TagMessage is a message that came before a receive for it. [Worker.TagProbe] hands it out
// to one that receives or releases it.
type TagMessage struct {
	node match.Msg[*TagMessage] // in Worker.tag.table until the message is taken

	w     *Worker
	msgs  *messages // to which it is charged
	from  *EP
	n     int         // length of the message
	place tuple.Place // among those of its sender, where messages may be sent again; see package tuple
	buf   []byte      // of the worker's buffers: the message, or the key of one that was announced
	sync  uint64      // the sender's name of it, if that waits

	in        *inbound   // as long as a part of it is to come
	rndv      *announced // the data, if it is with the sender
	lost      ucs.Status // why the rest does not come
	released  bool       // by the user, while the rest comes
	uncharged bool       // it was offered out of turn, without a charge

	next, prev *TagMessage // in messages.kept while it is in the table; in Worker.tag.idle
}

// maxIdleMessages is how many records of messages are kept for the next ones.
const maxIdleMessages = 1024

// newTagMessage takes a record for a message of n bytes.
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

// keep enters a message for the receive that will ask for it.
func (u *TagMessage) keep() {
	u.w.tag.table.Keep(&u.node)
	u.msgs.kept.add(u)
}

// taken is called when the message has left the table.
func (u *TagMessage) taken() *TagMessage {
	u.msgs.kept.remove(u)
	if u.msgs.closed {
		u.msgs.leftFewer(u)
	}
	return u
}

// keepTagged keeps a whole message.
func (w *Worker) keepTagged(e *EP, tag uint64, data []byte, sync uint64) {
	u := w.newTagMessage(e, tag, len(data))
	u.sync = sync
	u.buf = w.messages.buffers.get(len(data))
	copy(u.buf, data)
	u.keep()
}

// keepAnnounced keeps a message whose data is with its sender.
func (w *Worker) keepAnnounced(e *EP, tag uint64, a *announced) {
	w.newAnnouncedTag(e, tag, a).keep()
}

// newAnnouncedTag makes a record for a message whose data is with its sender.
func (w *Worker) newAnnouncedTag(e *EP, tag uint64, a *announced) *TagMessage {
	a.dropLongKey()
	u := w.newTagMessage(e, tag, a.n)
	u.rndv, u.uncharged, a.keeper, u.buf = a, false, u, w.messages.buffers.get(len(a.key))
	copy(u.buf, a.key)
	a.key = u.buf
	return u
}

// free gives back what a message had that is in no table and does not come any more.
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

// charge is how many bytes are charged to the sender, besides messageCharge.
func (u *TagMessage) charge() int {
	switch {
	case u.rndv == nil:
		return u.n
	case u.uncharged:
		return -messageCharge
	}
	return 0
}

// done ends a message that the user has, or does not want.
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

// info tells of the message.
func (u *TagMessage) info() TagInfo {
	return TagInfo{Tag: u.node.Tag, Length: u.n, From: u.from}
}

// recv gives a message that is not in the table to a receive.
func (u *TagMessage) recv(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	if u.in != nil || u.rndv != nil {
		return u.give(u.w.newTagRecv(buf, info, p).recv)
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

// give is recv where a request has been made already.
func (u *TagMessage) give(v *tagRecv) (*Request, error) {
	u.hand(v)
	return v.req.started()
}

// hand is give for a request that its caller has.
func (u *TagMessage) hand(v *tagRecv) {
	switch {
	case u.rndv != nil:
		u.giveAnnounced(v)
	case u.in != nil:
		v.tag = u.node.Tag
		v.write(0, u.buf[:u.in.got])
		u.in.sink = v
		u.free()
	default:
		v.write(0, u.buf)
		from, tag, n := u.from, u.node.Tag, u.n
		u.done(ucs.StatusOK)
		v.end(from, tag, n)
	}
}

// write implements sink.
func (u *TagMessage) write(off int, data []byte) { copy(u.buf[off:], data) }

// whole implements sink.
func (u *TagMessage) whole(*inbound) {
	u.in = nil
	if u.released {
		u.done(ucs.StatusCanceled)
	}
}

// broken implements sink.
func (u *TagMessage) broken(_ *inbound, st ucs.Status) {
	u.in = nil
	u.lose(st)
}

// withdrawn implements keeper. A message that the user has taken stays.
func (u *TagMessage) withdrawn() bool {
	if !u.w.tag.table.Remove(&u.node) {
		return false
	}
	u.taken().done(ucs.StatusCanceled)
	return true
}

// lose ends a message of which the rest does not come. One that the user has taken remains
// until it is given back.
func (u *TagMessage) lose(st ucs.Status) {
	switch {
	case u.w.tag.table.Remove(&u.node):
		u.taken().done(st)
	case u.released:
		u.done(st)
	default:
		u.lost = st
	}
}

// tagList is the messages of one sender that are kept, in order.
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

// loseAnnounced ends the announced messages that no receive has matched, when their data does not come any more.
func (m *messages) loseAnnounced(st ucs.Status) {
	if m == nil {
		return
	}
	for u := m.kept.first; u != nil; {
		next := u.next
		if u.rndv != nil {
			u.lose(st)
		}
		u = next
	}
}

// trimLeft drops the oldest messages that EPs of a peer have left behind until its others may use their memory.
func (w *Worker) trimLeft(uuid uint64) {
	room := w.leftRoom(uuid)
	for m := w.tag.leftFirst; m != nil && w.messages.leftOf[uuid] > room; {
		next := m.next
		if m.e.peer.Addr.UUID() == uuid {
			for m.kept.first != nil && w.messages.leftOf[uuid] > room {
				m.dropFirst()
			}
		}
		m = next
	}
}
