package ucxpeer

import (
	"fmt"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
)

// ActiveMessage is an active message of a peer. It is valid until the handler returns, with Header and Data, unless the
// sender keeps the data.
type ActiveMessage struct {
	ID     uint16
	Header []byte
	// Data is nil for a message that the sender keeps (rendezvous): receive it by Recv or refuse it by
	// Reject, in the handler or later.
	Data   []byte
	Length int // of the data in bytes
	// From is the endpoint by which the message can be replied to; nil if the sender wants no reply.
	From *EP

	ep  *EP
	req uint64 // of the sender of a rendezvous; 0: it was received or rejected, or Data has it
}

// ActiveHandler handles active messages. It runs in Progress; it may start operations, and must not call Progress.
type ActiveHandler func(m *ActiveMessage)

// OnActive sets the handler of the active messages with an id; nil removes it. Messages without a handler are
// dropped and counted; those of a rendezvous are rejected.
func (w *Worker) OnActive(id uint16, f ActiveHandler) {
	if f == nil {
		delete(w.handlers, id)
	} else {
		w.handlers[id] = f
	}
}

// SendActive sends an active message with a header, which is copied, and data, which belong to the operation
// until that has completed. ErrTooLong if the header does not fit one fragment of the transport (some 8 KiB).
func (e *EP) SendActive(id uint16, header, buf []byte, p *OpParams) (*Request, error) {
	return e.sendActive(id, header, data.Bytes(buf), p)
}

// SendActiveData is SendActive of any data.
func (e *EP) SendActiveData(id uint16, header []byte, d Data, p *OpParams) (*Request, error) {
	return e.sendActive(id, header, d.buffer, p)
}

// maxActiveHead is what is around the user's header in the first piece.
const maxActiveHead = ucxwire.RTSLen + ucxwire.AMLen + ucxwire.AMFirstTail

func (e *EP) sendActive(id uint16, header []byte, buf data.Buffer, p *OpParams) (*Request, error) {
	err := buf.Validate()
	if len(header) > e.w.attr.AM.MaxBcopy-maxActiveHead {
		err = fmt.Errorf("%w: header of %d bytes", ucs.ErrTooLong, len(header))
	}
	if err != nil {
		return nil, &ucs.OpError{TL: "ucx", Op: opActive.name, Err: err}
	}
	r := e.w.request(&opActive, p.onDone())
	r.buf, r.amID, r.header = buf, id, header
	single := ucxwire.AMLen + buf.Len() + len(header)
	if p.reply() {
		r.flags, r.op = ucxwire.FlagAMReply, &opActiveReply
		single += ucxwire.AMReplyTail
	}
	switch {
	case e.w.useRndv(&buf):
		r.op = &opActiveRndv
		r.flags |= ucxwire.FlagAMRndv
	case single > e.w.attr.AM.MaxBcopy:
		r.op = &opActiveFirst
	}
	req, err := e.start(r)
	if req != nil {
		r.header = append([]byte(nil), header...)
	}
	return req, err
}

var (
	opActive      = op{name: "send active message"}
	opActiveReply = op{name: "send active message", remote: true}
	opActiveFirst = op{name: "send active message", remote: true}
	opActiveRndv  = op{name: "send active message", remote: true}
	opActiveRecv  = op{name: "receive active message"}
)

func init() {
	opActive.post, opActiveReply.post = postActive, postActive
	opActiveFirst.post = postActiveFirst
	opActiveRndv.post = postActiveRTS
}

// activePacket has the header of an active message in the packet of the worker.
func (r *Request) activePacket() *packet {
	p := r.ep.packet()
	p.n0 = len(ucxwire.AppendAMHead(p.head[:0], r.amID, r.flags, len(r.header)))
	p.tail = r.header
	return p
}

func postActive(r *Request) error {
	p, id := r.activePacket(), ucxwire.IDAM
	if r.op == &opActiveReply {
		id = ucxwire.IDAMReply
		p.n1 = len(ucxwire.AppendAMReplyTail(p.foot[:0], r.ep.remote))
	}
	return r.sendPiece(id, p)
}

func postActiveFirst(r *Request) error {
	e := r.ep
	if r.off == 0 {
		msgID := r.w.nextMsgID()
		p := r.activePacket()
		p.n1 = len(ucxwire.AppendAMFirstTail(p.foot[:0], msgID, e.remote, uint64(r.buf.Len())))
		if err := r.sendPiece(ucxwire.IDAMFirst, p); err != nil {
			return err
		}
		ucxwire.AppendAMMiddleTail(r.tail[:0], msgID, e.remote)
	}
	for r.off < r.buf.Len() {
		var head [ucxwire.AMMiddleLen]byte
		ucxwire.AppendAMMiddleHead(head[:0], uint64(r.off))
		n, err := r.zcopy(ucxwire.IDAMMiddle, head[:], r.w.attr.AM.MaxZcopy, r.tail[:])
		if r.off += n; err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		p := e.packet()
		p.n0, p.n1 = copy(p.head[:], head[:]), copy(p.foot[:], r.tail[:])
		if err := r.sendPiece(ucxwire.IDAMMiddle, p); err != nil {
			return err
		}
	}
	return nil
}

func postActiveRTS(r *Request) error {
	head := uint64(r.amID) | uint64(r.flags)<<16 | uint64(len(r.header))<<32
	return r.postRTS(ucxwire.RTS{Header: head, Opcode: ucxwire.RTSOpcodeAM, UserHeader: r.header})
}

// deliver runs the handler of an active message.
func (w *Worker) deliver(m *ActiveMessage) {
	f := w.handlers[m.ID]
	if f == nil {
		if w.stats.Unhandled++; m.ep == nil || m.ep.mayAnswer() {
			m.Reject()
		}
		return
	}
	if m.From != nil {
		m.From.adopted = true
	}
	f(m)
}

// deliverEager runs the handler of a message that is here, which the handler must not keep.
func (w *Worker) deliverEager(m *ucxwire.AM, from *EP) {
	w.eager = ActiveMessage{ID: m.ID, Header: m.Header, Data: m.Data, Length: len(m.Data), From: from}
	w.deliver(&w.eager)
	w.eager = ActiveMessage{}
}

func (w *Worker) handleAM(a arrival) bool {
	m, ok := ucxwire.DecodeAM(a.data)
	if ok {
		w.deliverEager(&m, nil)
	}
	return ok
}

func (w *Worker) handleAMReply(a arrival) bool {
	m, ok := ucxwire.DecodeAMReply(a.data)
	if !ok {
		return false
	}
	e := w.epOf(a, m.EP)
	if e == nil {
		return w.late()
	}
	w.deliverEager(&m, e)
	return true
}

// activeInbound is an active message of which pieces are missing.
type activeInbound struct {
	message ActiveMessage
	header  []byte
	data    []byte // what has come; it grows with that, and not with what the peer promised
}

// maxActiveInbound bounds how many there are for an EP.
const maxActiveInbound = 256

func (w *Worker) handleAMFirst(a arrival) bool {
	m, ok := ucxwire.DecodeAMFirst(a.data)
	if !ok {
		return false
	}
	e := w.epOf(a, m.EP)
	if e == nil {
		return w.late()
	}
	if m.Total > uint64(w.cfg.MaxActive) || len(e.active) >= maxActiveInbound || e.active[m.MsgID] != nil {
		e.misbehaved(ucs.StatusRemoteInvalid, fmt.Sprintf("an active message of %d bytes, which is more than the limit or has the id of another", m.Total))
		return true
	}
	in := &activeInbound{message: ActiveMessage{ID: m.ID, Length: int(m.Total)}, header: append([]byte(nil), m.Header...)}
	if m.Flags&ucxwire.FlagAMReply != 0 {
		in.message.From = e
	}
	if e.active == nil {
		e.active = map[uint64]*activeInbound{}
	}
	e.active[m.MsgID] = in
	w.addActive(e, m.MsgID, in, m.Data)
	return true
}

func (w *Worker) handleAMMiddle(a arrival) bool {
	m, ok := ucxwire.DecodeAMMiddle(a.data)
	if !ok {
		return false
	}
	e := w.epOf(a, m.EP)
	if e == nil {
		return w.late()
	}
	in := e.active[m.MsgID]
	if in == nil || m.Offset != uint64(len(in.data)) || len(m.Data) > in.message.Length-len(in.data) {
		e.misbehaved(ucs.StatusRemoteInvalid, "a piece of an active message that is not the next one")
		return true
	}
	w.addActive(e, m.MsgID, in, m.Data)
	return true
}

func (w *Worker) addActive(e *EP, msgID uint64, in *activeInbound, b []byte) {
	if e.activeBytes += len(b); e.activeBytes > w.cfg.MaxActive {
		e.misbehaved(ucs.StatusRemoteInvalid, "more of active messages in pieces than the limit")
		return
	}
	if in.data = append(in.data, b...); len(in.data) < in.message.Length {
		return
	}
	e.activeBytes -= len(in.data)
	delete(e.active, msgID)
	m := in.message
	m.Header, m.Data = in.header, in.data
	w.deliver(&m)
}

// maxActiveRndv bounds how many rendezvous an EP has that the program has neither received nor rejected.
const maxActiveRndv = 4096

func (w *Worker) activeRTS(e *EP, r *ucxwire.RTS) {
	am := r.AM()
	m := &ActiveMessage{ID: am.ID, Header: append([]byte(nil), am.Header...), Length: int(r.Size), ep: e, req: r.Req}
	if am.Flags&ucxwire.FlagAMReply != 0 {
		m.From = e
	}
	if e.activeRndv++; e.activeRndv > maxActiveRndv {
		if e.mayAnswer() {
			m.Reject()
		}
		return
	}
	w.deliver(m)
}

// Recv copies the data of the message to buf, or fetches them; buf then belongs to the operation until that has
// completed. ErrTruncated if they do not fit. It is called once.
func (m *ActiveMessage) Recv(buf []byte, p *OpParams) (*Request, error) {
	fail := func(err error) (*Request, error) {
		return nil, &ucs.OpError{TL: "ucx", Op: opActiveRecv.name, Err: err}
	}
	if m.ep == nil {
		if copy(buf, m.Data) < m.Length {
			return fail(ucs.ErrTruncated)
		}
		return nil, nil
	}
	e := m.ep
	switch {
	case e.state >= epFailed:
		return nil, e.refuse(opActiveRecv.name)
	case m.req == 0:
		return fail(ucs.ErrInvalidState)
	case len(buf) < m.Length:
		m.reject(ucs.StatusOK)
		return fail(ucs.ErrTruncated)
	}
	r := &Request{w: e.w, op: &opActiveRecv, buf: data.Bytes(buf), status: ucs.StatusInProgress, onDone: p.onDone()}
	in := &message{w: e.w, total: m.Length, ep: e, req: m.req, rndv: true, recv: r}
	r.msg, m.req = in, 0
	e.activeRndv--
	if in.fetch(); r.status != ucs.StatusInProgress {
		return nil, r.Err()
	}
	return r, nil
}

// Reject refuses a message that the sender keeps: its send fails. It does nothing for others.
func (m *ActiveMessage) Reject() { m.reject(ucs.StatusRejected) }

func (m *ActiveMessage) reject(st ucs.Status) {
	if m.ep == nil || m.req == 0 {
		return
	}
	m.ep.activeRndv--
	if m.ep.state < epFailed {
		m.ep.reply(ucxwire.IDATS, replyBytes(ucxwire.Reply{Req: m.req, Status: ucxwire.StatusOf(st)}))
	}
	m.req = 0
}
