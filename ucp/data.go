package ucp

import (
	"fmt"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
)

// Data is the data of one message in a form other than one slice: the bytes to send, or where
// to receive them. [Bytes], [Buffers], [From] and [To] make it. Use a Data for one operation only.
// Until the request has completed, the caller must not modify the slices that it was made of, nor
// read those of a receive.
type Data struct{ buffer data.Buffer }

// Packer makes the bytes of a message while it is sent. Its methods are called on the goroutine
// that drives the worker, within a transport: they may close EPs, and must not start or cancel
// operations, nor call Progress.
type Packer interface {
	// Length returns the number of bytes. It is called once.
	Length() int
	// PackAt writes the bytes from offset off on to dst, which does not go beyond the end, and
	// returns how many it wrote: 1 to len(dst). Each call begins where the one before ended.
	// PackAt must not retain dst.
	PackAt(off int, dst []byte) int
}

// Unpacker consumes the bytes of a message while it arrives. For its methods the rules of
// [Packer] hold.
type Unpacker interface {
	// UnpackAt consumes src, the bytes from offset off on. Each call begins where the one before
	// ended. UnpackAt must not retain src. After an error only Finish is called.
	UnpackAt(off int, src []byte) error
	// Finish is called once, after the last UnpackAt: with nil if the message is complete,
	// otherwise with the reason why it is not. The receive fails with the error that Finish
	// returns, which should be err.
	Finish(err error) error
}

// Bytes returns data in one piece.
func Bytes(b []byte) Data { return Data{data.Bytes(b)} }

// Buffers returns data in pieces, like net.Buffers; pieces may be empty.
func Buffers(list [][]byte) Data { return Data{data.List(list)} }

// From returns data to send that p makes.
func From(p Packer) Data { return Data{data.From(p)} }

// To returns data to receive that u consumes. Its length has no limit: u rejects what is too
// long with ErrTruncated.
func To(u Unpacker) Data { return Data{data.To(u)} }

// newSendData is newSend for data that is not in one piece.
func (e *EP) newSendData(c *channel, word uint64, d *data.Buffer, p *OpParams) (*Request, error) {
	if err := d.Validate(); err != nil || d.Len() > maxMessage {
		return nil, e.wrong(action{stage: &c.send}, ucs.ErrInvalidParam, "the data has no valid length, or is to be received into")
	}
	r, err := e.newSend(c, word, nil, nil)
	if err == nil {
		r.msg.data, r.onDone = *d, p.onDone()
	}
	return r, err
}

// data is the data of a message that is not in Request.buf; nil if it is there. A request
// that sends it for its parent has the parent's.
func (r *Request) data() *data.Buffer {
	m := r.msg
	if m == nil && r.parent != nil {
		m = r.parent.msg
	}
	if m == nil || m.data.Len() == 0 {
		return nil
	}
	return &m.data
}

// total is how many bytes of data the request is to send.
func (r *Request) total() int {
	switch d := r.data(); {
	case d == nil:
		return len(r.buf)
	case r.msg == nil:
		return int(r.raddr) // what its receiver wants
	default:
		return d.Len()
	}
}

// sendPart sends a header and n bytes of the message from an offset on, by one copy.
func (r *Request) sendPart(x *lane, id uint8, head []byte, off, n int) error {
	p := &r.worker.piece
	p.head = head
	if d := r.data(); d != nil {
		p.from, p.off, p.n = d, off, n
		r.worker.packing = d.Generic()
	} else {
		p.data = r.buf[off : off+n]
	}
	_, err := x.AM.AMBcopy(id, p)
	broken := p.err
	*p, r.worker.packing = headedMsg{}, false
	if err == nil && broken != nil {
		r.ep.markFailed(ucs.StatusInvalidParam, fmt.Errorf("%w: the data of a message could not be packed", broken), nil)
		return broken
	}
	return err
}

// headedMsg is a header and data on their way into a transport buffer.
type headedMsg struct {
	head, data []byte

	from   *data.Buffer // nil: data has it
	off, n int          // in from
	err    error        // why it could not be packed
}

// Pack copies both.
func (m *headedMsg) Pack(dst []byte) int {
	at := copy(dst, m.head)
	if m.from == nil {
		return at + bulk.Copy(dst[at:], m.data)
	}
	to := dst[at : at+m.n]
	n, err := m.from.Pack(m.off, to)
	if err != nil {
		m.err = err
		clear(to[n:])
	}
	return at + m.n
}

// TagSendData is [EP.TagSend] of any data. What is not in one piece is copied, unless it is a list that
// is announced and put into the receiver's buffer; a Packer is
// called until the request has ended, by this call or from Progress. A Packer that breaks
// its contract fails the EP with ErrInvalidParam, since the peer has a part of the message.
func (e *EP) TagSendData(tag uint64, d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.TagSend(tag, b, p)
	}
	r, err := e.newSendData(tagChannel, tag, &d.buffer, p)
	if err != nil {
		return nil, err
	}
	return r.startTagged()
}

// TagSendSyncData is [EP.TagSendSync] of any data; as [EP.TagSendData].
func (e *EP) TagSendSyncData(tag uint64, d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.TagSendSync(tag, b, p)
	}
	r, err := e.newSendData(tagChannel, tag, &d.buffer, p)
	if err != nil {
		return nil, err
	}
	r.msg.acked = true
	return r.startTagged()
}

// startTagged starts a tagged message.
func (r *Request) startTagged() (*Request, error) {
	if x := r.worker.tuples; x != nil {
		return x.start(r)
	}
	return r.start()
}

// SendActiveData is [EP.SendActive] of any data; as [EP.TagSendData].
func (e *EP) SendActiveData(id uint16, header []byte, d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.SendActive(id, header, b, p)
	}
	if len(header) > e.longestHeader() {
		return nil, e.headerTooLong(header, d.buffer.Len())
	}
	r, err := e.newSendData(activeChannel, activeWord(id, header), &d.buffer, p)
	if err != nil {
		return nil, err
	}
	r.msg.header = header
	return r.start()
}

// TagRecvData is [Worker.TagRecv] into any data. An Unpacker is called from Progress, or by
// this call; its last call, which tells it to finish, comes before the request ends. If it
// returns an error, the receive ends with the status of that error (StatusInternal if ucs has
// none for it). The data of an announced message is put together in a buffer first, unless it
// is got into the pieces of a list.
func (w *Worker) TagRecvData(d Data, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return w.TagRecv(b, tag, mask, info, p)
	}
	if err := d.buffer.Validate(); err != nil {
		return nil, recvError(0, fmt.Errorf("%w: the data has no valid length, or nothing takes it", err))
	}
	if w.closed {
		return nil, recvError(0, ucs.ErrClosed)
	}
	r := w.newTagRecv(nil, info, nil)
	v := r.recv
	v.data, v.typed, r.onDone = d.buffer, true, p.onDone()
	r.flags = reqTyped
	if x := w.tuples; x != nil {
		return x.receive(v, tag, mask)
	}
	if m := w.tags.Take(tag, mask); m != nil {
		return m.Owner.taken().give(v)
	}
	v.node.Tag, v.node.Mask = tag, mask
	w.tags.Expect(&v.node)
	w.receivePosted(tag, mask)
	r.tells()
	return r, nil
}
