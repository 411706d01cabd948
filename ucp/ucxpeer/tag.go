package ucxpeer

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
)

// TagInfo describes a tagged message. UCX does not identify the endpoint that sent it.
type TagInfo struct {
	Tag    uint64 // the tag of the sender
	Length int    // length of the message in bytes, also if the buffer is shorter
}

// TagSend sends a tagged message. The caller must not modify buf until the operation has completed, which is when the
// transport does not need it: at once, with a nil Request, if the message is small and the transport has room.
func (e *EP) TagSend(tag uint64, buf []byte, p *OpParams) (*Request, error) {
	return e.tagSend(tag, data.Bytes(buf), false, p)
}

// TagSendSync is TagSend, but completes when the peer has matched the message with a receive.
func (e *EP) TagSendSync(tag uint64, buf []byte, p *OpParams) (*Request, error) {
	return e.tagSend(tag, data.Bytes(buf), true, p)
}

// TagSendData is TagSend with Data.
func (e *EP) TagSendData(tag uint64, d Data, p *OpParams) (*Request, error) {
	return e.tagSend(tag, d.buffer, false, p)
}

// TagSendSyncData is TagSendSync with Data.
func (e *EP) TagSendSyncData(tag uint64, d Data, p *OpParams) (*Request, error) {
	return e.tagSend(tag, d.buffer, true, p)
}

func (e *EP) tagSend(tag uint64, buf data.Buffer, sync bool, p *OpParams) (*Request, error) {
	op := &opTagSend
	switch {
	case e.w.useRndv(&buf):
		op = &opTagRndv
	case sync:
		op = &opTagSync
	case buf.Len()+ucxwire.EagerLen > e.w.attr.AM.MaxBcopy:
		op = &opTagFirst
	}
	if err := buf.Validate(); err != nil {
		return nil, &ucs.OpError{TL: "ucx", Op: op.name, Err: err}
	}
	r := e.w.request(op, p.onDone())
	r.buf, r.arg = buf, tag
	return e.start(r)
}

// useRndv reports whether a message is sent by rendezvous.
func (w *Worker) useRndv(buf *data.Buffer) bool {
	return w.cfg.RndvThresh >= 0 && buf.Len() > 0 && buf.Len() >= w.cfg.RndvThresh
}

var (
	opTagSend  = op{name: "tag send"}
	opTagFirst = op{name: "tag send"}
	opTagSync  = op{name: "tag send sync", remote: true}
	opTagRndv  = op{name: "tag send", remote: true}
	opTagRecv  = op{name: "tag receive"}
)

func init() {
	opTagSend.post = postTag
	opTagFirst.post = postTagFirst
	opTagSync.post = postTagSync
	opTagRndv.post = postTagRTS
}

// postTag sends a message in one fragment.
func postTag(r *Request) error {
	p := r.ep.packet()
	p.n0 = len(ucxwire.AppendEager(p.head[:0], ucxwire.Eager{Tag: r.arg}))
	p.buf, p.off, p.n = &r.buf, 0, r.buf.Len()
	if err := r.ep.send(ucxwire.IDEager); err != nil {
		return err
	}
	r.off = r.buf.Len()
	return nil
}

// postTagFirst sends a message in several fragments.
func postTagFirst(r *Request) error {
	if r.off == 0 {
		if r.remote.msgID == 0 {
			r.remote.msgID = r.w.nextMsgID()
		}
		p := r.ep.packet()
		p.n0 = len(ucxwire.AppendEagerFirst(p.head[:0], ucxwire.EagerFirst{Tag: r.arg, Total: uint64(r.buf.Len()), MsgID: r.remote.msgID}))
		if err := r.sendPiece(ucxwire.IDEagerFirst, p); err != nil {
			return err
		}
	}
	return r.postPieces(ucxwire.IDEagerMiddle, r.remote.msgID)
}

// postTagSync sends a message that the peer acknowledges when it has matched it.
func postTagSync(r *Request) error {
	if r.buf.Len() == 0 {
		p := r.ep.packet()
		p.n0 = len(ucxwire.AppendSync(p.head[:0], ucxwire.Sync{Tag: r.arg, EP: r.ep.remote, Req: r.wireID()}))
		err := r.ep.send(ucxwire.IDSync)
		r.waits = err == nil
		return err
	}
	if r.remote.msgID == 0 {
		r.remote.msgID = r.w.nextMsgID()
		p := r.ep.packet()
		p.n0 = len(ucxwire.AppendSyncFirst(p.head[:0], ucxwire.SyncFirst{
			Tag: r.arg, Total: uint64(r.buf.Len()), MsgID: r.remote.msgID, EP: r.ep.remote, Req: r.wireID()}))
		if err := r.sendPiece(ucxwire.IDSyncFirst, p); err != nil {
			r.remote.msgID = 0
			return err
		}
		r.waits = true
	}
	return r.postPieces(ucxwire.IDEagerMiddle, r.remote.msgID)
}

// nextMsgID returns the id of the next message in fragments. It is never 0.
func (w *Worker) nextMsgID() uint64 {
	if w.msgID++; w.msgID == 0 {
		w.msgID++
	}
	return w.msgID
}

// sendPiece sends as many bytes of the data as fit in p after its header.
func (r *Request) sendPiece(id uint8, p *packet) error {
	p.buf, p.off = &r.buf, r.off
	p.n = min(r.buf.Len()-r.off, r.w.attr.AM.MaxBcopy-p.n0-len(p.tail)-p.n1)
	if err := r.ep.send(id); err != nil {
		return err
	}
	r.off += p.n
	return nil
}

// postPieces sends the remaining data as fragments.
func (r *Request) postPieces(id uint8, name uint64) error {
	for r.off < r.buf.Len() {
		var head [ucxwire.FragmentLen]byte
		ucxwire.AppendFragment(head[:0], ucxwire.Fragment{Name: name, Offset: uint64(r.off)})
		n, err := r.zcopy(id, head[:], r.w.attr.AM.MaxZcopy, nil)
		if r.off += n; err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		p := r.ep.packet()
		p.n0 = copy(p.head[:], head[:])
		if err := r.sendPiece(id, p); err != nil {
			return err
		}
	}
	return nil
}

// handleSyncAck completes a synchronous send that the peer has matched.
func (w *Worker) handleSyncAck(a arrival) bool {
	m, ok := ucxwire.DecodeReply(a.data)
	if !ok {
		return false
	}
	r := w.requestOf(a, m.Req)
	if r == nil || r.op != &opTagSync || !r.waits {
		return w.countLate()
	}
	r.waits = false
	if st := m.Status.Local(); st != ucs.StatusOK && r.comp.Status == ucs.StatusOK {
		r.comp.Status = st
	}
	r.endIfDone()
	return true
}

// TagRecv receives a message whose tag equals tag in the bits of mask, into buf, which the caller must not use until the
// operation has completed. A message that is longer fills buf, and the receive fails with
// ErrTruncated. If info is not nil, it is set before the request completes. A nil Request means that the message had
// arrived and was received.
func (w *Worker) TagRecv(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	return w.tagRecv(data.Bytes(buf), tag, mask, info, p)
}

// TagRecvData is TagRecv with Data.
func (w *Worker) TagRecvData(d Data, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	return w.tagRecv(d.buffer, tag, mask, info, p)
}

func (w *Worker) tagRecv(buf data.Buffer, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	err := buf.Validate()
	if w.closed {
		err = ucs.ErrClosed
	}
	if err != nil {
		return nil, &ucs.OpError{TL: "ucx", Op: opTagRecv.name, Err: err}
	}
	r := &Request{w: w, op: &opTagRecv, buf: buf, status: ucs.StatusInProgress, info: info, onDone: p.onDone()}
	r.recv.Owner, r.recv.Tag, r.recv.Mask = r, tag, mask
	if w.tags.Unexpected() > 0 {
		if m := w.tags.Take(tag, mask); m != nil {
			done := r.onDone
			r.onDone = nil
			m.Owner.match(r)
			switch {
			case r.status == ucs.StatusInProgress:
				r.onDone = done
			case r.status == ucs.StatusOK:
				return nil, nil
			default:
				return nil, r.Err()
			}
			return r, nil
		}
	}
	w.tags.Expect(&r.recv)
	return r, nil
}

// TagProbe looks for an unexpected message with a matching tag. With remove, the message is no longer matched with
// receives: the caller must receive it with Recv, or discard it with Release.
func (w *Worker) TagProbe(tag, mask uint64, remove bool) (m *TagMessage, info TagInfo, ok bool) {
	found := w.tags.Peek(tag, mask)
	if found == nil {
		return nil, TagInfo{}, false
	}
	if remove {
		w.tags.Remove(found)
		m = &TagMessage{found.Owner}
	}
	return m, found.Owner.info(), true
}

// TagMessage is a message that TagProbe removed.
type TagMessage struct{ m *message }

// Info describes the message.
func (t *TagMessage) Info() TagInfo { return t.m.info() }

// Recv receives the message, once, as TagRecv does.
func (t *TagMessage) Recv(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	w := t.m.w
	r := &Request{w: w, op: &opTagRecv, buf: data.Bytes(buf), status: ucs.StatusInProgress, info: info}
	r.recv.Owner = r
	t.m.match(r)
	r.onDone = p.onDone()
	switch r.status {
	case ucs.StatusInProgress:
		return r, nil
	case ucs.StatusOK:
		return nil, nil
	}
	return nil, r.Err()
}

// Release discards the message. A synchronous or rendezvous send fails at the sender with ErrCanceled.
func (t *TagMessage) Release() { t.m.discard(ucs.StatusCanceled) }

// message is a tagged message that arrives, or an active message by rendezvous.
type message struct {
	w      *Worker
	msg    match.Msg[*message]
	total  int
	got    int
	msgID  uint64 // id of a message in fragments; 0 for one in one fragment, or by rendezvous
	pieces []piece
	recv   *Request
	broken bool // further fragments are discarded

	ep     *EP    // sender of a synchronous message or a rendezvous
	req    uint64 // id of the request of the sender
	rndv   bool
	sync   bool
	result ucs.Status // status of the receive when everything has arrived
}

func (m *message) info() TagInfo { return TagInfo{Tag: m.msg.Tag, Length: m.total} }

// arrive matches a message whose first fragment is payload, or stores it as unexpected.
func (w *Worker) arrive(a arrival, m *message, tag uint64, payload []byte) bool {
	m.w, m.msg.Tag, m.msg.Owner = w, tag, m
	inPieces := len(payload) < m.total && !m.rndv
	key := pieceOf{a.conn, m.msgID}
	if inPieces && (w.inbound[key] != nil || w.source(a.conn).incomplete >= maxInbound) {
		return false
	}
	r := w.tags.Arrive(tag)
	if r == nil && !w.canBuffer(a) {
		return true
	}
	if inPieces {
		w.inbound[key] = m
		w.source(a.conn).incomplete++
	}
	if r == nil {
		m.keep(a, payload)
		w.tags.Keep(&m.msg)
		return true
	}
	m.match(r.Owner)
	m.write(payload)
	return true
}

// maxInbound limits the incomplete messages of a connection.
const maxInbound = 1024

// receive completes a receive with a message in one fragment.
func (r *Request) receive(tag uint64, b []byte) {
	if r.info != nil {
		*r.info = TagInfo{Tag: tag, Length: len(b)}
	}
	st, err := ucs.StatusOK, error(nil)
	if r.off, err = r.buf.Unpack(0, b); err != nil {
		st = receiveStatus(err)
	}
	r.end(st, err)
}

// receiveStatus returns the status of a receive for the error of its buffer.
func receiveStatus(err error) ucs.Status {
	if errors.Is(err, ucs.ErrTruncated) {
		return ucs.StatusTruncated
	}
	return ucs.StatusIOError
}

// keep holds a fragment, or the RTS of a rendezvous, until there is a receive.
func (m *message) keep(a arrival, payload []byte) {
	m.pieces = append(m.pieces, m.w.buffer(a, payload))
	m.got += len(payload)
}

// match starts to receive the message.
func (m *message) match(r *Request) {
	m.recv, r.msg = r, m
	if r.info != nil {
		*r.info = m.info()
	}
	if m.broken {
		r.end(m.result, nil)
		return
	}
	if m.sync {
		m.ep.reply(ucxwire.IDSyncAck, replyBytes(ucxwire.Reply{Req: m.req}))
	}
	if m.rndv {
		m.releasePieces()
		m.fetch()
		return
	}
	pieces := m.pieces
	m.pieces, m.got = nil, 0
	for i := range pieces {
		m.write(pieces[i].data)
		pieces[i].release()
	}
	if m.total == 0 {
		m.write(nil)
	}
}

// write stores the next fragment; the last one completes the receive.
func (m *message) write(b []byte) {
	if m.recv == nil || m.recv.status != ucs.StatusInProgress {
		return
	}
	r := m.recv
	if len(b) > 0 && !m.broken {
		n, err := r.buf.Unpack(m.got, b)
		if r.off += n; err != nil {
			m.broken, m.result, r.detail = true, receiveStatus(err), err
		}
	}
	if m.got += len(b); m.got >= m.total {
		r.end(m.result, r.detail)
	}
}

func (m *message) releasePieces() {
	for i := range m.pieces {
		m.pieces[i].release()
	}
	m.pieces = nil
}

// drop releases a message without a receive.
func (m *message) drop() {
	m.releasePieces()
	m.broken = true
}

// discard drops a message, of which fragments may still arrive, and sends the status to a sender that waits.
func (m *message) discard(st ucs.Status) {
	m.drop()
	switch {
	case m.ep == nil || m.ep.state >= epFailed:
	case m.sync:
		m.ep.reply(ucxwire.IDSyncAck, replyBytes(ucxwire.Reply{Req: m.req, Status: ucxwire.StatusOf(st)}))
	case m.rndv:
		m.ep.reply(ucxwire.IDATS, replyBytes(ucxwire.Reply{Req: m.req, Status: ucxwire.StatusOf(st)}))
	}
}

// countLate counts a message with the id of an EP or a request that does not exist, perhaps because it was closed.
func (w *Worker) countLate() bool {
	w.stats.Late++
	return true
}

func (w *Worker) handleEager(a arrival) bool {
	e, ok := ucxwire.DecodeEager(a.data)
	if !ok {
		return false
	}
	if r := w.tags.Arrive(e.Tag); r != nil {
		r.Owner.receive(e.Tag, e.Data)
		return true
	}
	if !w.canBuffer(a) {
		return true
	}
	m := &message{w: w, total: len(e.Data)}
	m.msg.Tag, m.msg.Owner = e.Tag, m
	m.keep(a, e.Data)
	w.tags.Keep(&m.msg)
	return true
}

func (w *Worker) handleEagerFirst(a arrival) bool {
	e, ok := ucxwire.DecodeEagerFirst(a.data)
	if !ok || e.Total > maxMessage {
		return false
	}
	return w.arrive(a, &message{total: int(e.Total), msgID: e.MsgID}, e.Tag, e.Data)
}

// maxMessage is the longest message in bytes; lengths above it are malformed.
const maxMessage = 1 << 46

func (w *Worker) handleSync(a arrival) bool {
	e, ok := ucxwire.DecodeSync(a.data)
	if !ok {
		return false
	}
	ep := w.epOf(a, e.EP)
	if ep == nil {
		return w.countLate()
	}
	return w.arrive(a, &message{total: len(e.Data), ep: ep, req: e.Req, sync: true}, e.Tag, e.Data)
}

func (w *Worker) handleSyncFirst(a arrival) bool {
	e, ok := ucxwire.DecodeSyncFirst(a.data)
	if !ok || e.Total > maxMessage {
		return false
	}
	ep := w.epOf(a, e.EP)
	if ep == nil {
		return w.countLate()
	}
	return w.arrive(a, &message{total: int(e.Total), msgID: e.MsgID, ep: ep, req: e.Req, sync: true}, e.Tag, e.Data)
}

// handleEagerMiddle adds a fragment to a message. The fragments of a message arrive in order.
func (w *Worker) handleEagerMiddle(a arrival) bool {
	f, ok := ucxwire.DecodeFragment(a.data)
	key := pieceOf{a.conn, f.Name}
	m := w.inbound[key]
	if !ok || m == nil || f.Offset != uint64(m.got) || len(f.Data) == 0 || len(f.Data) > m.total-m.got {
		return false
	}
	if m.got+len(f.Data) == m.total {
		delete(w.inbound, key)
		w.source(a.conn).incomplete--
	}
	switch {
	case m.recv != nil:
		m.write(f.Data)
	case m.broken:
		m.got += len(f.Data)
	default:
		m.keep(a, f.Data)
	}
	return true
}

// fetch requests the data of a rendezvous from the sender.
func (m *message) fetch() {
	r := m.recv
	if m.ep.state >= epFailed {
		r.end(m.ep.cause, m.ep.err)
		return
	}
	if r.buf.Len() < m.total && !r.buf.Generic() { // UCX's sender cannot report truncation
		m.ep.reply(ucxwire.IDATS, replyBytes(ucxwire.Reply{Req: m.req}))
		r.end(ucs.StatusTruncated, fmt.Errorf("%w: %d bytes into %d", ucs.ErrTruncated, m.total, r.buf.Len()))
		return
	}
	if m.total == 0 {
		m.ep.reply(ucxwire.IDATS, replyBytes(ucxwire.Reply{Req: m.req}))
		r.end(ucs.StatusOK, nil)
		return
	}
	m.w.rndv[m] = struct{}{}
	m.ep.reply(ucxwire.IDRTR, ucxwire.AppendRTR(nil, &ucxwire.RTR{Sender: m.req, Receiver: r.wireID(), Size: uint64(m.total)}))
}

// dropMessages fails receives of rendezvous from an EP that was closed or has failed, and drops unexpected rendezvous from
// it.
func (w *Worker) dropMessages(e *EP) {
	st := e.cause
	if st == ucs.StatusOK {
		st = ucs.StatusCanceled
	}
	for m := range w.rndv {
		if m.ep == e {
			delete(w.rndv, m)
			if m.recv != nil {
				m.recv.end(st, e.err)
			}
		}
	}
	var lost []*message
	for m := range w.tags.Messages() {
		if m.Owner.ep == e && m.Owner.rndv {
			lost = append(lost, m.Owner)
		}
	}
	for _, m := range lost {
		w.tags.Remove(&m.msg)
		m.drop()
	}
}
