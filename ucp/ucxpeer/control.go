package ucxpeer

import (
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// packet packs one message of the transport: head, n bytes of buf at off, tail and foot.
type packet struct {
	head   [64]byte
	long   []byte // used instead of head; nil if head is used
	n0     int    // length of head
	buf    *data.Buffer
	off, n int
	tail   []byte // for example the user's header of an active message
	foot   [24]byte
	n1     int // length of foot
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
		clear(dst[k+n : k+p.n]) // after an error: the length is fixed already, and the EP fails
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

// packet returns the packet of the worker, cleared.
func (e *EP) packet() *packet {
	p := &e.w.out
	p.long, p.buf, p.n, p.tail, p.n1 = nil, nil, 0, nil, 0
	return p
}

// control is a message that the EP sends before all operations: a reply to the peer, or a wireup message.
type control struct {
	id    uint8
	bytes []byte
	get   *getReply // instead of bytes: the reply to a get
	send  *Request  // instead of bytes: a rendezvous whose data the peer has requested
}

const (
	// maxControl limits the queued control messages before requests of the peer for memory are delayed. Delayed requests count
	// as unexpected messages, so that a peer that does not read its replies is finally not read either.
	maxControl = 256
	// maxQueuedReplies is how many may wait when the peer asks for an answer that costs it nothing. It is broken then.
	maxQueuedReplies = 1 << 16
)

// canReply reports whether one more reply may be queued. If not, it breaks the connection.
func (e *EP) canReply() bool {
	if len(e.control) < maxQueuedReplies {
		return true
	}
	e.failForViolation(ucs.StatusRemoteInvalid, "requests without reading the replies")
	return false
}

// reply sends or queues a control message.
func (e *EP) reply(id uint8, bytes []byte) {
	if e.state < epFailed {
		e.control = append(e.control, control{id: id, bytes: bytes})
		e.sendQueued()
	}
}

// flushControl sends the queued control messages.
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
		e.executeDelayed()
	}
	return nil
}

// replyBytes encodes a reply.
func replyBytes(r ucxwire.Reply) []byte { return ucxwire.AppendReply(nil, r) }

// zcopy posts the next bytes of the data of r without a copy, between head, which is copied, and tail, which must
// not change until the request completes. It returns the number of bytes; 0 means that the caller must copy.
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
