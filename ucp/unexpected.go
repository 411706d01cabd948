package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
)

// TagMessage is a message that came before a receive for it. [Worker.TagProbe] hands it out
// to one that receives or releases it.
type TagMessage struct {
	node match.Msg[*TagMessage] // in Worker.tags until the message is taken

	w    *Worker
	msgs *messages // to which it is charged
	from *EP
	buf  []byte // of the worker's buffers
	sync uint64 // the sender's name of it, if that waits

	rndv     *announced // the data, if that is with the sender; buf has its key then
	in       *inbound   // nil: all of it is here, or nothing but the announcement
	lost     ucs.Status // why the rest does not come
	released bool       // by the user, while the rest comes
	next     *TagMessage
}

// maxIdleMessages is how many records of messages are kept for the next ones.
const maxIdleMessages = 1024

// newTagMessage takes a record for a message of n bytes.
func (w *Worker) newTagMessage(e *EP, tag uint64, n int) *TagMessage {
	u := w.idleMessages
	if u == nil {
		u = &TagMessage{w: w}
		u.node.Owner = u
	} else {
		w.idleMessages = u.next
		w.idleCount--
	}
	u.node.Tag, u.msgs, u.from = tag, e.msgs, e
	u.buf = w.buffers.get(n)
	return u
}

// keepTagged keeps a whole message for the receive that will ask for it.
func (w *Worker) keepTagged(e *EP, tag uint64, data []byte, sync uint64) {
	u := w.newTagMessage(e, tag, len(data))
	u.sync = sync
	copy(u.buf, data)
	w.tags.Keep(&u.node)
}

// free gives back what a message had that is in no table and does not come any more.
func (u *TagMessage) free() {
	w := u.w
	w.buffers.put(u.buf)
	u.msgs, u.from, u.buf, u.rndv, u.in = nil, nil, nil, nil, nil
	u.sync, u.lost, u.released = 0, ucs.StatusOK, false
	if w.idleCount < maxIdleMessages {
		w.idleCount++
		u.next, w.idleMessages = w.idleMessages, u
	}
}

// done ends a message that the user has, or does not want.
func (u *TagMessage) done(st ucs.Status) {
	if u.rndv != nil {
		u.msgs.announced--
		u.msgs.received(0)
		u.rndv.refuse(st)
		u.free()
		return
	}
	u.msgs.received(len(u.buf))
	if u.sync != 0 {
		u.msgs.acknowledge(u.sync, st)
	}
	u.free()
}

// info tells of the message.
func (u *TagMessage) info() TagInfo {
	n := len(u.buf)
	if u.rndv != nil {
		n = u.rndv.n
	}
	return TagInfo{Tag: u.node.Tag, Length: n, From: u.from}
}

// recv gives a message that is not in the table to a receive.
func (u *TagMessage) recv(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	switch {
	case u.rndv != nil:
		return u.recvAnnounced(buf, info, p)
	case u.in != nil:
		return u.recvRest(buf, info, p), nil
	}
	if info != nil {
		*info = u.info()
	}
	copy(buf, u.buf)
	total := len(u.buf)
	u.done(ucs.StatusOK)
	if total > len(buf) {
		return nil, recvError(len(buf), ucs.ErrTruncated)
	}
	return nil, nil
}

// recvRest is recv for a message of which a part has come: the rest goes to the receive.
func (u *TagMessage) recvRest(buf []byte, info *TagInfo, p *OpParams) *Request {
	r := u.w.newTagRecv(buf, info, p)
	r.recv.tag = u.node.Tag
	r.recv.write(0, u.buf[:u.in.got])
	u.in.sink = r.recv
	u.free()
	return r
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

// broken implements sink. A message that the user has taken remains until it is given back.
func (u *TagMessage) broken(_ *inbound, st ucs.Status) {
	u.in = nil
	if w := u.w; w.tags.Remove(&u.node) || u.released {
		u.done(st)
		return
	}
	u.lost = st
}
