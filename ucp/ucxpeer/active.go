package ucxpeer

import (
	"fmt"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
)

// ActiveMessage is an active message of a peer. An eager message is valid, with Header and Data, until the handler
// returns. A rendezvous message is valid until Recv or Reject.
type ActiveMessage struct {
	ID     uint16
	Header []byte
	// Data is nil for a rendezvous message: call Recv or Reject, in the handler or later.
	Data   []byte
	Length int // length of the data in bytes
	// From is the endpoint for a reply; nil if the sender has not set OpParams.Reply.
	From *EP

	ep  *EP
	req uint64 // id of the sender's rendezvous; 0 if it was received or rejected, or for an eager message
}

// ActiveHandler handles active messages. It runs in Progress; it may start operations, and must not call Progress.
type ActiveHandler func(m *ActiveMessage)

// OnActive sets the handler of the active messages with an id; nil removes it. Messages without a handler are
// dropped and counted; rendezvous messages are also rejected.
func (w *Worker) OnActive(id uint16, f ActiveHandler) {
	if f == nil {
		delete(w.handlers, id)
	} else {
		w.handlers[id] = f
	}
}

// SendActive sends an active message with a header, which is copied, and the data in buf, which the caller must not
// modify until the operation has completed. ErrTooLong if the header does not fit one fragment of the transport (about
// 8 KiB).
func (e *EP) SendActive(id uint16, header, buf []byte, p *OpParams) (*Request, error) {
	return e.sendActive(id, header, data.Bytes(buf), p)
}

// SendActiveData is SendActive with Data.
func (e *EP) SendActiveData(id uint16, header []byte, d Data, p *OpParams) (*Request, error) {
	return e.sendActive(id, header, d.buffer, p)
}

// maxActiveHead is the largest length of the protocol headers around the user's header, in bytes.
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

// activePacket returns the packet of the worker with the header of an active message.
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
		if w.stats.Unhandled++; m.ep == nil || m.ep.canReply() {
			m.Reject()
		}
		return
	}
	if m.From != nil {
		m.From.adopted = true
	}
	f(m)
}

// deliverEager runs the handler of an eager message.
func (w *Worker) deliverEager(m *ucxwire.AM, from *EP) {
	w.eagerMsg = ActiveMessage{ID: m.ID, Header: m.Header, Data: m.Data, Length: len(m.Data), From: from}
	w.deliver(&w.eagerMsg)
	w.eagerMsg = ActiveMessage{}
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
		return w.countLate()
	}
	w.deliverEager(&m, e)
	return true
}

// activeInbound is an active message of which fragments are missing.
type activeInbound struct {
	message ActiveMessage
	header  []byte
	data    []byte // the received bytes; it grows with them, because the peer could claim any total length
}

// maxActiveInbound limits the incomplete active messages of an EP.
const maxActiveInbound = 256

func (w *Worker) handleAMFirst(a arrival) bool {
	m, ok := ucxwire.DecodeAMFirst(a.data)
	if !ok {
		return false
	}
	e := w.epOf(a, m.EP)
	if e == nil {
		return w.countLate()
	}
	if m.Total > uint64(w.cfg.MaxActive) || len(e.active) >= maxActiveInbound || e.active[m.MsgID] != nil {
		e.failForViolation(ucs.StatusRemoteInvalid, fmt.Sprintf("an active message of %d bytes that exceeds a limit or has the id of another one", m.Total))
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
		return w.countLate()
	}
	in := e.active[m.MsgID]
	if in == nil || m.Offset != uint64(len(in.data)) || len(m.Data) > in.message.Length-len(in.data) {
		e.failForViolation(ucs.StatusRemoteInvalid, "an unexpected fragment of an active message")
		return true
	}
	w.addActive(e, m.MsgID, in, m.Data)
	return true
}

func (w *Worker) addActive(e *EP, msgID uint64, in *activeInbound, b []byte) {
	if e.activeBytes += len(b); e.activeBytes > w.cfg.MaxActive {
		e.failForViolation(ucs.StatusRemoteInvalid, "more bytes of incomplete active messages than the limit")
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

// maxActiveRndv limits the rendezvous of an EP that the program has neither received nor rejected.
const maxActiveRndv = 4096

func (w *Worker) activeRTS(e *EP, r *ucxwire.RTS) {
	am := r.AM()
	m := &ActiveMessage{ID: am.ID, Header: append([]byte(nil), am.Header...), Length: int(r.Size), ep: e, req: r.Req}
	if am.Flags&ucxwire.FlagAMReply != 0 {
		m.From = e
	}
	if e.activeRndv++; e.activeRndv > maxActiveRndv {
		if e.canReply() {
			m.Reject()
		}
		return
	}
	w.deliver(m)
}

// Recv copies the data of an eager message to buf, or requests the data of a rendezvous message; the caller must not use
// buf until the operation has completed. ErrTruncated if the data does not fit. Recv may be called once.
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
		return nil, e.stateError(opActiveRecv.name)
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

// Reject rejects a rendezvous message: its send fails. It has no effect for other messages.
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
