package ucp

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// ActiveMessage is the argument of a handler. It is valid until the handler returns; Keep
// extends that. Its fields must not be changed.
type ActiveMessage struct {
	// ID is the id of the message, which the sender chose.
	ID uint16
	// Header and Data are the arguments of the sender. They must not be written to. Data is nil
	// if the sender still has it: see Recv.
	Header, Data []byte
	// Length is the length of the data in bytes.
	Length int
	// From is the connection to the sender, for replies.
	From *EP

	w      *Worker
	msgs   *messages  // the window to which the message is charged
	rndv   *announced // the data, if it is still at the sender; otherwise nil
	kept   bool
	buf    []byte         // buffer of the worker for Header and Data of a kept message
	charge int            // bytes that are charged to the sender; uncharged if there are none
	next   *ActiveMessage // in Worker.active.free
}

// uncharged is the charge of a further copy of a message: only the first copy is charged.
const uncharged = -1

// ActiveHandler handles active messages. Progress of the worker calls it. It may start
// operations, make and close EPs, and receive and keep the message. It must not block and must not call
// Progress.
type ActiveHandler func(m *ActiveMessage)

// activeHandlers are the handlers by id, in pages, none of which is nil.
type activeHandlers struct {
	short shortArrivals
	msg   ActiveMessage  // argument of the handler for other complete messages
	free  *ActiveMessage // pool for kept messages and nested calls of handlers
	page  [256]*handlerPage
}

type handlerPage [256]ActiveHandler

// noHandlers is a page without handlers.
var noHandlers = func() (p handlerPage) {
	for i := range p {
		p[i] = dropActive
	}
	return p
}()

// dropActive handles messages without a handler.
func dropActive(m *ActiveMessage) { m.w.stats.badMessages.Inc() }

func (h *activeHandlers) init(w *Worker) {
	for i := range h.page {
		h.page[i] = &noHandlers
	}
	h.msg.w, h.short.w, h.short.from, h.short.msgs = w, w, unconnected, unconnected
}

func (h *activeHandlers) at(id uint16) *ActiveHandler { return &h.page[id>>8][id&0xff] }

// dropConn drops the state of a closed connection, except for a message that a running handler may use:
// tidy drops that when no handler runs.
func (h *activeHandlers) dropConn(m *messages) {
	if h.short.from == m {
		h.short.from = unconnected
	}
}

func (h *activeHandlers) dropClosed() {
	if h.short.from == unconnected {
		h.short.msgs, h.short.From, h.short.Data = unconnected, nil, nil
	}
}

// chargeInHandler returns the charge of the latest short message of a connection while its handler may still
// keep the message, in bytes.
func (h *activeHandlers) chargeInHandler(m *messages) int64 {
	if h.short.msgs != m || h.short.kept {
		return 0
	}
	return min(charge(h.short.Length), m.Due)
}

// OnActive sets the handler of active messages with an id; nil removes it. Messages without a handler
// are dropped and counted as bad. Call OnActive before peers get the worker's
// address.
func (w *Worker) OnActive(id uint16, f ActiveHandler) {
	if f == nil {
		f = dropActive
	}
	if p := &w.active.page[id>>8]; *p == &noHandlers {
		page := noHandlers
		*p = &page
	}
	*w.active.at(id) = f
	if w.active.short.ID == id {
		w.active.short.to = f
	}
}

// MaxActiveHeader is the maximum length of the header of an active message in bytes. A transport with small
// messages, such as ud with an MTU of 1 KiB, has a lower limit.
const MaxActiveHeader = 2 << 10

const _ = uint(window.LongestHeader - MaxActiveHeader) // a window has room for it

// activeProtocol is the protocol of active messages.
var activeProtocol = protocol{
	init: func(w *Worker) { w.active.init(w) },
	handlers: func(w *Worker) []handler {
		return []handler{
			{wire.AMActive, (*activeArrivals)(w)},
			{wire.AMActiveShort, &w.active.short},
			{wire.AMActiveFirst, uct.AMHandlerFunc(w.handleActiveFirst)},
			{wire.AMActiveRTS, uct.AMHandlerFunc(w.handleActiveRTS)},
		}
	},
	worked:           func(w *Worker) { w.active.dropClosed() },
	chargeInHandlers: func(e *EP) int64 { return e.w.active.chargeInHandler(e.msgs) },
	destroyed: func(e *EP) {
		if e.msgs != nil {
			e.w.active.dropConn(e.msgs)
		}
	},
}

var activeChannel = withAnnouncements(newChannel("active message", &activeClass, channel{
	eagerID: wire.AMActive, first: wire.AMActiveFirst, rts: wire.AMActiveRTS, rndv: activeRndv,
}))

var activeClass = withDropRequest(messageClass)

// activeWord is the first word of an active message.
func activeWord(id uint16, header []byte) uint64 { return uint64(id) | uint64(len(header))<<32 }

// SendActive sends an active message: the peer's handler of the id gets header, of at most
// MaxActiveHeader bytes, and data. Messages of an EP are handled in the order in which they are sent. If the
// request is nil, header and data belong to the caller again; the sender does not learn whether the message was
// handled. If data has Config.RndvThresh bytes or more (by default, if that is faster than fragments), or the peer has no room, the
// handler gets the message without its data (rendezvous), and the request completes when the peer has received the
// data, in the handler or later, or has dropped the message. Errors: as [EP.Err]; ErrTooLong for the header;
// ErrUnsupported if no transport of both sides has active messages.
func (e *EP) SendActive(id uint16, header, data []byte, p *OpParams) (*Request, error) {
	if len(data) < int(e.roles.atOnce) && len(header) == 0 && (p == nil || p.Flags == 0) {
		m := e.msgs
		m.Credit -= charge(len(data))
		if m.Credit >= 0 && m.am.AMShort(wire.AMActiveShort, m.word|uint64(id), data) == nil {
			return nil, nil
		}
		e.msgs.Credit += charge(len(data))
		return e.sendActiveSlow(id, nil, data[:len(data):len(data)], p) // so that fewer values are saved across the call
	}
	return e.sendActiveSlow(id, header, data, p)
}

//go:noinline
func (e *EP) sendActiveSlow(id uint16, header, data []byte, p *OpParams) (*Request, error) {
	if len(header) > shortData && len(header) > e.longestHeader() {
		return nil, e.headerTooLong(header, len(data))
	}
	if m := e.msgs; m != nil && (p == nil || p.Flags == 0 && (p.Mem == nil || len(data) <= m.maxWord && len(header) == 0 ||
		len(data) <= m.maxCopyMem && (*region.Mem)(p.Mem).Covers(data))) {
		n, err := len(header)+len(data), error(uct.ErrNoResource)
		switch {
		case len(header) == 0 && n <= m.maxLong:
			err = m.shortActive(id, data)
		case n <= m.maxShort && n <= shortData:
			err = m.shortHeaded(e.w, activeWord(id, header), header, data)
		case n <= m.maxCopy:
			err = m.copied(e.w, wire.AMActive, activeWord(id, header), header, data)
		}
		if err == nil {
			return nil, nil
		}
	}
	r, err := e.newSend(activeChannel, activeWord(id, header), data, p)
	if err != nil {
		return nil, err
	}
	r.msg.header = header
	return r.startFlagged(p, (*Request).start)
}

// activeArrivals is the worker as the handler of complete active messages. A method
// value would cost two more calls.
type activeArrivals Worker

// HandleAM calls the handler of an active message.
func (a *activeArrivals) HandleAM(data []byte, _ uct.Desc) bool {
	w := (*Worker)(a)
	var h wire.Head
	rest, ok := h.Unpack(data)
	n := int(h.Word >> 32)
	if !ok || n > len(rest) {
		w.stats.badMessages.Inc()
		return false
	}
	w.runActive(h.EP, uint16(h.Word), rest[:n:n], rest[n:])
	return false
}

// shortArrivals is the handler of short active messages. It caches the connection and id of the latest one,
// because the next one usually has the same.
type shortArrivals struct {
	ActiveMessage               // argument of the handler; w does not change, msgs, From and ID match word
	word          uint64        // first word of the latest message: id of the EP and of the message
	from          *messages     // messages of that EP; unconnected if the EP is closed or the message was kept
	to            ActiveHandler // handler of that id
}

// HandleAM calls the handler of a short active message. If the message has the same word as
// the latest one, this takes a few instructions. HandleAM returns the charge before it calls the handler, so that
// the call is the last step and no register must be saved.
func (a *shortArrivals) HandleAM(data []byte, _ uct.Desc) bool {
	if n := len(data) - wire.WordLen; n > 0 && binary.LittleEndian.Uint64(data) == a.word {
		if left := a.from.Left(n); left >= 0 {
			a.from.Quota = left
			a.Data, a.Length = data[wire.WordLen:len(data):len(data)], n
			a.to(&a.ActiveMessage)
			return false
		}
	}
	a.w.handleShort(data)
	return false
}

// handleShort calls the handler of any short active message.
//
//go:noinline
func (w *Worker) handleShort(data []byte) {
	if len(data) < wire.WordLen {
		w.stats.badMessages.Inc()
		return
	}
	word, rest := binary.LittleEndian.Uint64(data), data[wire.WordLen:]
	name, id, h := wire.ShortEP(word), wire.ShortID(word), &w.active
	msgs := w.from(name, len(rest))
	if msgs == nil {
		w.runCharged(name, id, nil, rest)
		return
	}
	m := &h.short
	m.word, m.from, m.to = word, msgs, *h.at(id)
	m.ID, m.From, m.msgs = id, msgs.e, msgs
	m.Data, m.Length, m.kept = rest, len(rest), false
	msgs.Quota -= charge(len(rest))
	m.to(&m.ActiveMessage)
	msgs.consumeQuota(0)
}

// runActive calls the handler of a complete message from the connection with an id.
func (w *Worker) runActive(name uint64, id uint16, header, data []byte) {
	h, n := &w.active, len(header)+len(data)
	msgs := w.from(name, n)
	if msgs == nil {
		w.runCharged(name, id, header, data)
		return
	}
	m := &h.msg // assigning the fields costs a third of assigning the struct
	m.ID, m.Header, m.Data, m.Length = id, header, data, len(data)
	m.From, m.msgs, m.kept, m.charge = msgs.e, msgs, false, n
	(*h.at(id))(m)
	if !m.kept {
		msgs.consumeQuota(charge(n))
	}
}

// runCharged is runActive for a message that must be charged first.
func (w *Worker) runCharged(name uint64, id uint16, header, data []byte) {
	n := len(header) + len(data)
	if e := w.accept(name, n); e != nil {
		w.runWithRecord(e, ActiveMessage{ID: id, Header: header, Data: data, Length: len(data), charge: n})
	}
}

// runWithRecord calls the handler of a message that was charged to its sender, with a record of its own.
func (w *Worker) runWithRecord(e *EP, what ActiveMessage) {
	m := w.active.take()
	*m = what
	m.From, m.w, m.msgs = e, w, e.msgs
	(*w.active.at(m.ID))(m)
	if !m.kept {
		m.finish()
	}
	w.active.put(m)
}

// take returns an empty record from the pool.
func (h *activeHandlers) take() *ActiveMessage {
	m := h.free
	if m == nil {
		return &ActiveMessage{}
	}
	h.free = m.next
	return m
}

func (h *activeHandlers) put(m *ActiveMessage) {
	*m = ActiveMessage{next: h.free}
	h.free = m
}

// finish is called when the user no longer uses the message.
func (m *ActiveMessage) finish() {
	if m.rndv != nil {
		m.rndv.refuse(ucs.StatusCanceled)
		m.rndv.free()
	}
	if m.charge != uncharged {
		m.msgs.received(m.charge)
	}
}

// Recv writes the data of the message to buf. It can be called once. If the data has arrived (Data is
// not nil, or Length is 0), Recv copies it. Otherwise it fetches the data from
// the sender, and buf belongs to gucx until the request is complete; the message may be released
// before that. If the request is nil, the data is in buf. Call Recv in the handler, or later on
// the result of Keep: a message that was neither received nor kept is dropped, and its
// sender does not learn that. If From fails or is closed, the request completes with the reason.
// Errors: ErrTruncated if the data is longer than buf, which then has the first bytes;
// ErrInvalidParam if OpParams.Mem does not cover buf or the message was received already;
// as [EP.Err] if From has failed or is closed; ErrPeerClosed if the peer has closed the connection and From is
// to be connected again.
func (m *ActiveMessage) Recv(buf []byte, p *OpParams) (*Request, error) {
	e, act := m.From, action{stage: &activeRecv, n: len(buf)}
	if p != nil && p.Mem != nil && !(*region.Mem)(p.Mem).Covers(buf) {
		return nil, e.wrong(act, uct.ErrInvalidParam, "the buffer is not in OpParams.Mem")
	}
	if p.flags() != 0 {
		if err := e.checkFlags(act, p); err != nil {
			return nil, err
		}
	}
	if m.rndv == nil {
		return m.w.completeLater(p, nil, m.copyTo(buf, act))
	}
	if err := m.rndv.checkFetchable(act); err != nil {
		return nil, err
	}
	r := m.w.newRequest(e, &activeRecv)
	r.buf = buf
	if p != nil {
		r.mem, r.onDone = (*region.Mem)(p.Mem), p.OnDone
	}
	m.rndv.fetch(r, fetchStages)
	m.rndv.free()
	m.rndv = nil
	r, err := r.started()
	return m.w.completeLater(p, r, err)
}

// RecvData is [ActiveMessage.Recv] into any [Data], as [Worker.TagRecvData]: an [Unpacker] is called by this call if the
// data of the message has arrived, otherwise from Progress. Errors: as Recv; that of the Unpacker, or ErrInternal if
// ucs has no status for it.
func (m *ActiveMessage) RecvData(d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return m.Recv(b, p)
	}
	act := action{stage: &activeRecv, n: m.Length}
	if d.buffer.ValidateReceive() != nil {
		return nil, m.From.wrong(act, ucs.ErrInvalidParam, "the data has no valid length, or nothing takes it")
	}
	if err := m.From.checkFlags(act, p); err != nil {
		return nil, err
	}
	if m.rndv == nil {
		return m.w.completeLater(p, nil, m.unpackTo(&typedData{data: d.buffer}, act))
	}
	if err := m.rndv.checkFetchable(act); err != nil {
		return nil, err
	}
	r := m.w.newRequest(m.From, &activeRecv)
	r.msg, r.onDone = m.w.newMessageRecord(), p.onDone()
	r.msg.typedData = typedData{data: d.buffer, typed: true} // all fields: see write
	r.msg.typedData.fetch(r, m.rndv, activeFetchStages)
	m.rndv.free()
	m.rndv = nil
	r, err := r.started()
	return m.w.completeLater(p, r, err)
}

// unpackTo is RecvData of data that has arrived.
func (m *ActiveMessage) unpackTo(d *typedData, act action) error {
	if m.Data == nil && m.Length > 0 {
		return m.From.wrong(act, uct.ErrInvalidParam, alreadyReceived)
	}
	if m.Length > 0 {
		d.write(0, m.Data)
	}
	var err error
	if m.Length > d.data.Len() {
		err = ucs.ErrTruncated
	}
	if st := d.finish(err); st != ucs.StatusOK {
		return m.From.errorOf(act, st.Err())
	}
	return nil
}

// alreadyReceived is the text of the error of a second receive.
const alreadyReceived = "the message was received already, or kept"

// activeFetchStages are the stages of a receive into Data that fetches an active message.
var activeFetchStages = newFetchStages("receive", &activeRecvClass, (*Request).activeFetched)

// activeRecvClass is the class of these receives.
var activeRecvClass = class{
	write:   func(r *Request, off int, data []byte) { r.msg.typedData.write(off, data) },
	abandon: func(r *Request) { r.msg.typedData.abandon() },
	free:    (*Request).freeMessage,
}

// activeFetched runs when such a receive has completed.
func (r *Request) activeFetched() {
	if r.msg.typed { // false also if the caller has abandoned it
		r.msg.typedData.fetched(r)
	}
}

// activeRecv names the receive of an active message in errors.
var activeRecv = stage{name: "receive", sized: true, role: wireup.AM}

// copyTo is Recv of data that has arrived.
func (m *ActiveMessage) copyTo(buf []byte, act action) error {
	if m.Data == nil && m.Length > 0 {
		return m.From.wrong(act, uct.ErrInvalidParam, alreadyReceived)
	}
	if copy(buf, m.Data) < m.Length {
		return m.From.wrong(act, ucs.ErrTruncated, fmt.Sprintf("%d bytes", m.Length))
	}
	return nil
}

// Keep returns a copy of the message that belongs to the caller until Release. m is still valid only until
// the handler returns. The bytes of the message count once against the window of its sender, until
// the first copy is released.
func (m *ActiveMessage) Keep() *ActiveMessage {
	w := m.w
	k := w.active.take()
	short := &w.active.short
	if m == &short.ActiveMessage {
		m.charge = m.Length
		if !m.kept {
			m.msgs.Quota += charge(m.charge) // HandleAM has returned it
		}
		short.from = unconnected // handleShort handles the next message, which is not kept
	}
	if (m == &short.ActiveMessage || m == &w.active.msg) && !m.kept {
		m.msgs.chargeArrived(m.charge)
	}
	*k = *m
	if m.kept {
		k.charge = uncharged
	}
	m.kept, k.kept = true, true
	k.next, k.buf = nil, nil
	if m.rndv != nil { // there is a header and a key
		m.rndv = nil
		k.rndv.dropLongKey()
		k.buf = w.messages.buffers.get(len(m.Header) + len(k.rndv.key))
		k.Header, k.rndv.key = k.copied(m.Header, k.rndv.key)
		return k
	}
	k.buf = w.messages.buffers.get(len(m.Header) + len(m.Data))
	k.Header, k.Data = k.copied(m.Header, m.Data)
	return k
}

// copied copies two parts of a message into its buffer.
func (m *ActiveMessage) copied(a, b []byte) (_, _ []byte) {
	n := copy(m.buf, a)
	copy(m.buf[n:], b)
	return m.buf[:n:n], m.buf[n:]
}

// Reject counts the message in bad_messages of [Worker.Stats]. A handler calls it for an invalid
// message, or one that its sender is not permitted to send.
func (m *ActiveMessage) Reject() { m.w.stats.badMessages.Inc() }

// Release releases a message that Keep has returned, and returns credit to its sender. The message and its data
// must not be used afterwards. The goroutine that owns the worker must call it.
func (m *ActiveMessage) Release() {
	w := m.w
	m.finish()
	w.messages.buffers.put(m.buf)
	w.active.put(m)
}

// handleActiveFirst handles the first fragment of an active message. The handler runs
// when all fragments have arrived.
func (w *Worker) handleActiveFirst(data []byte, _ uct.Desc) bool {
	var h wire.Head
	var p wire.Part
	rest, ok := h.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	n := h.Word >> 32
	if !ok || n > uint64(len(rest)) || p.Value > maxEager {
		w.stats.badMessages.Inc()
		return false
	}
	total := int(p.Value)
	e := w.accept(h.EP, int(n)+total)
	if e == nil {
		return false
	}
	s := &activeSink{word: h.Word, buf: w.messages.buffers.get(int(n) + total)}
	copy(s.buf, rest[:n])
	if in := w.newInbound(e, p.ID, total, s); !in.take(0, rest[n:]) {
		w.stats.badMessages.Inc()
		in.drop(ucs.StatusRemoteInvalid)
	}
	return false
}

// handleActiveRTS calls the handler of an active message whose data is still at its sender.
func (w *Worker) handleActiveRTS(data []byte, _ uct.Desc) bool {
	var h wire.Head
	var p wire.RTS
	rest, ok := h.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	if !ok || h.Word>>32 != uint64(len(rest)) || p.ID == 0 || p.Length > maxMessage {
		w.stats.badMessages.Inc()
		return false
	}
	if e := w.accept(h.EP, len(rest)); e != nil {
		a := newAnnounced(e, &p)
		w.runWithRecord(e, ActiveMessage{
			ID: uint16(h.Word), Header: rest, Length: a.n, rndv: a, charge: len(rest),
		})
	}
	return false
}

// activeSink assembles an active message from fragments: its header, then its data.
type activeSink struct {
	word uint64
	buf  []byte
}

func (s *activeSink) write(off int, data []byte) { copy(s.buf[int(s.word>>32)+off:], data) }

func (s *activeSink) complete(in *inbound) {
	n := int(s.word >> 32)
	w, id := in.e.w, uint16(s.word)
	w.runWithRecord(in.e, ActiveMessage{
		ID: id, Header: s.buf[:n:n], Data: s.buf[n:], Length: len(s.buf) - n, charge: len(s.buf),
	})
	w.messages.buffers.put(s.buf)
}

func (s *activeSink) fail(in *inbound, _ ucs.Status) {
	in.e.w.messages.buffers.put(s.buf)
	in.msgs.received(len(s.buf))
}

// shortActive sends an active message of up to maxLong bytes without a header in one call. Errors: as short.
func (m *messages) shortActive(id uint16, data []byte) error {
	if m.Credit < charge(len(data)) {
		return uct.ErrNoResource
	}
	err := m.am.AMShort(wire.AMActiveShort, m.word|uint64(id), data)
	if err == nil {
		m.Credit -= charge(len(data))
	}
	return err
}

// shortHeaded sends an active message with a header in one call. Errors: as short.
func (m *messages) shortHeaded(w *Worker, word uint64, header, data []byte) error {
	if m.Credit < shortData+messageCharge {
		return uct.ErrNoResource
	}
	n := len(header) + len(data)
	b := w.messages.short[:wire.NameLen+n]
	binary.LittleEndian.PutUint64(b, m.name)
	copy(b[wire.NameLen+copy(b[wire.NameLen:], header):], data)
	err := m.am.AMShort(wire.AMActive, word, b)
	if err == nil {
		m.Credit -= charge(n)
	}
	return err
}

func (e *EP) headerTooLong(header []byte, n int) error {
	a := action{stage: &activeChannel.send, n: n}
	return e.wrong(a, ucs.ErrTooLong, fmt.Sprintf("a header of %d bytes, %d fit", len(header), e.longestHeader()))
}

// longestHeader returns the maximum length of the header of an active message in bytes. It must fit into an RTS;
// the first fragment has more room.
func (e *EP) longestHeader() int {
	if i := e.transport(wireup.AM); i != nil {
		return min(MaxActiveHeader, i.attr.AM.MaxBcopy-wire.HeadLen-wire.RTSLen)
	}
	return MaxActiveHeader
}

// SendActiveData is [EP.SendActive] with any [Data]: one buffer, a list, or a [Packer]. The data belongs to
// gucx until the request is complete. Errors: as SendActive; ErrInvalidParam for data to receive into.
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
	return r.startFlagged(p, (*Request).start)
}
