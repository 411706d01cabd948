package ucxpeer

import (
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// packet packs one message: head, n bytes of buf from off on, and the tails.
type packet struct {
	head   [64]byte
	long   []byte // in place of head; nil: head
	n0     int    // bytes of head
	buf    *data.Buffer
	off, n int
	tail   []byte // such as the user's header of an active message
	foot   [24]byte
	n1     int // bytes of foot
	err    error
}

// Pack implements uct.Packer.
func (p *packet) Pack(dst []byte) int {
	head := p.head[:p.n0]
	if p.long != nil {
		head = p.long
	}
	k := copy(dst, head)
	if p.n > 0 {
		var n int
		n, p.err = p.buf.Pack(p.off, dst[k:k+p.n])
		clear(dst[k+n : k+p.n]) // the length is promised: the EP fails
		k += p.n
	}
	k += copy(dst[k:], p.tail)
	return k + copy(dst[k:], p.foot[:p.n1])
}

// send posts the packet of the worker.
func (e *EP) send(id uint8) error {
	p := &e.w.out
	p.err = nil
	if _, err := e.am.AMBcopy(id, p); err != nil {
		return err
	}
	if p.err != nil {
		return ucs.Because(ucs.StatusInvalidParam, p.err)
	}
	return nil
}

// packet returns the packet of the worker without data.
func (e *EP) packet() *packet {
	p := &e.w.out
	p.long, p.buf, p.n, p.tail, p.n1 = nil, nil, 0, nil, 0
	return p
}

// control is a message that the EP sends for itself, before all operations: replies to the peer and wireup.
type control struct {
	id    uint8
	bytes []byte
	get   *getReply // in place of bytes
	send  *Request  // a rendezvous whose data the peer asked for
}

const (
	// maxControl is how many such messages may wait. Requests of the peer for memory that need more are held, and
	// count as messages without a receive: a peer that does not read its replies is not read in the end.
	maxControl = 256
	// maxAnswers is how many may wait when the peer asks for an answer that costs it nothing. It is broken then.
	maxAnswers = 1 << 16
)

// mayAnswer reports whether one more answer may be queued, and breaks the peer if not.
func (e *EP) mayAnswer() bool {
	if len(e.control) < maxAnswers {
		return true
	}
	e.misbehaved(ucs.StatusRemoteInvalid, "more requests than it reads answers to")
	return false
}

// reply sends or queues a message of the EP's own.
func (e *EP) reply(id uint8, bytes []byte) {
	if e.state < epFailed {
		e.control = append(e.control, control{id: id, bytes: bytes})
		e.sendQueued()
	}
}

// flushControl sends messages of the EP's own.
func (e *EP) flushControl() error {
	for len(e.control) > 0 {
		c := &e.control[0]
		var err error
		switch {
		case c.get != nil:
			err = e.postGetReply(c.get)
		case c.send != nil:
			err = e.postRndvData(c.send)
		default:
			p := e.packet()
			p.long = c.bytes
			err = e.send(c.id)
		}
		switch err {
		case nil:
		case uct.ErrNoResource:
			return err
		default:
			e.failLater(err)
			e.control = nil
			return nil
		}
		done := *c
		if e.control = e.control[1:]; len(e.control) == 0 {
			e.control = nil
		}
		if r := done.send; r != nil {
			r.posted = true
			r.endIfDone()
		}
		e.resumeHeld()
	}
	return nil
}

// replyBytes encodes a reply.
func replyBytes(r ucxwire.Reply) []byte { return ucxwire.AppendReply(nil, r) }

// zcopy sends n bytes of buf from off on without a copy, behind head, which is copied, and before tail, which must
// not change until the request ends. It returns how many bytes of the buffer went; 0: use a copy.
func (r *Request) zcopy(id uint8, head []byte, limit int, tail []byte) (n int, err error) {
	w := r.w
	left := r.buf.Len() - r.off
	if w.zcopyMin == 0 || left < w.zcopyMin || r.buf.Generic() || len(head) > w.attr.AM.MaxHeader {
		return 0, nil
	}
	var iov [4]uct.IOV
	most := min(len(iov), w.attr.AM.MaxIOV)
	if len(tail) > 0 {
		most--
	}
	count, n := r.buf.Slices(r.off, min(left, limit, w.attr.AM.MaxZcopy-len(head)-len(tail)), iov[:most])
	if n < w.zcopyMin {
		return 0, nil
	}
	if len(tail) > 0 {
		iov[count].Buf = tail
		count++
	}
	r.comp.Count++
	pending, err := r.ep.am.AMZcopy(id, head, iov[:count], &r.comp)
	if !pending || err != nil {
		r.comp.Count--
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
