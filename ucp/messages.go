package ucp

import (
	"encoding/binary"
	"math"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/internal/shortcopy"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// messageState is the state of a worker for the messages of its EPs.
type messageState struct {
	latest      *messages        // messages of the EP from which a message last arrived; unconnected if there is none
	granted     int64            // sum of the windows of all EPs, minus firstWindow for each, in bytes
	leftBytes   int64            // bytes charged for unreceived messages of closed EPs
	leftOf      map[uint64]int64 // leftBytes by the UUID of the peer; no entry is 0
	free        *message         // pool of records
	freeInbound *inbound         // pool of records
	freeRTS     *announced       // pool of records of newAnnounced
	buffers     buffers
	short       shortMsg  // scratch memory of joinedWords, during a call
	eager       eagerMsg  // the message that a transport packs, during a call
	piece       headedMsg // the same for a part of a message
}

// messageProtocol is shared by tagged messages, active messages and streams.
var messageProtocol = protocol{
	init: func(w *Worker) { w.messages.latest, w.messages.leftOf = unconnected, map[uint64]int64{} },
	handlers: func(w *Worker) []handler {
		return []handler{
			{wire.AMFrag, uct.AMHandlerFunc(w.handleFrag)},
			{wire.AMAck, w.handleControl((*Worker).handleAck)},
			{wire.AMCredit, w.handleControl((*Worker).handleCredit)},
		}
	},
	traffic:  func(e *EP) (int64, bool) { return e.msgs.traffic() },
	linked:   (*EP).openWindow,
	learned:  (*EP).learnWindow,
	deferred: (*EP).grantPostponed,
	bind:     (*EP).bindMessages,
	unbind: func(e *EP) {
		if m := e.msgs; m != nil {
			m.unbind()
			m.admit()
		}
	},
	ready:        (*EP).bindMessages,
	delays:       (*EP).sendEcho,
	incomingLost: func(e *EP, st ucs.Status) { e.msgs.dropInbound(st) },
	discarded:    (*EP).returnDiscarded,
	flushes:      (*EP).grantLast,
	destroyed:    (*EP).closeWindow,
	startedOver:  func(e *EP) { e.msgs, e.roles.atOnce = nil, 0 },
}

// messages is the state of an EP that sends or receives messages: how the next message is
// sent, the credit, and the messages in flight.
//
// Unreceived messages refer to it and not to the EP, which gets a new one when it
// starts over.
type messages struct {
	e    *EP
	self uint64 // id of the EP here, which messages of the peer contain; before oneCall, so that its offset is one byte
	oneCall

	// Receiving.
	window.Window
	creditKnown bool // Credit includes the first window, which the handshake of the peer contains
	grown       bool // grow has tried to enlarge the first window
	credits     grants

	echoes  uint8    // number of echoes that a closing loop-back has sent; see loopback.go
	sending *Request // message that is sent in fragments and not completely posted; later messages wait
	inbound *inbound // messages that have arrived in part, the oldest first
	closed  bool     // the EP is closed, or has started over with a new messages
	keys    peerKeys
	lastID  uint64         // id of the latest message that was sent in fragments
	stream  *stream        // nil until the first use
	sends   *stream        // stream; nil after StreamEnd
	tuple   *tupleLink     // nil if messages use no tuple queues
	stalls  stalls         // waits for credit
	counted countedTraffic // what Worker.stats includes

	tag  tagMessages
	rndv rndvMessages
}

// grants are the AMCredit messages of a connection.
type grants struct {
	got, sent uint64 // numbers of messages
	later     bool   // the next Progress sends one
}

// stalls counts the waits for credit of the messages of a connection.
type stalls struct {
	now   bool // a message has lacked credit since the peer last granted some
	total uint64
}

// oneCall says how a message is sent in one call. bindMessages sets these fields, and unbind clears them. The maximum
// lengths are in bytes of data; -1 means that no message may be sent this way now, for example because an
// earlier message waits.
type oneCall struct {
	am          uct.AMSender     // of the lane for messages
	words       uct.AMWordSender // of the same lane, or joined
	name        uint64           // id of the EP at the peer
	maxShort    int              // maximum length for words
	maxCopy     int              // maximum length for one AMBcopy
	maxWords    int              // maximum length for words without OpParams.Mem; -1 if words is joined
	word        uint64           // first word of a short active message, without its id
	maxWord     int              // maximum length of a short active message
	maxLong     int              // maximum length of a short active message without OpParams.Mem
	minZcopy    int              // length from which data in OpParams.Mem may be sent without a copy
	maxCopyMem  int              // maximum length of an active message that is copied although its data is in OpParams.Mem
	slowTagSend bool             // Worker.tag.matcher must be called before a message is sent: maxShort and maxCopy are -1
	mayShort    int              // value of maxShort if slowTagSend were false
	mayCopy     int              // value of maxCopy if slowTagSend were false
	joined      joinedWords      // words of a lane that does not implement AMWordSender
}

// traffic returns a number that changes with each message, and whether no message of the peer is stored here and none is
// sent or has arrived in part. m may be nil.
func (m *messages) traffic() (n int64, quiet bool) {
	if m == nil {
		return 0, true
	}
	return m.Sent() + m.Received(), m.Held == 0 && m.inbound == nil && m.sending == nil
}

// blocks reports whether r must wait because an earlier message waits. It returns false for the message whose turn it is. r is
// nil for a new message.
func (m *messages) blocks(r *Request) bool {
	before := m.e.waiting.messages()
	if before > 0 && r != nil && r.flags&reqDequeued != 0 {
		before = m.e.waiting.DeferredOrdered()
	}
	return before > 0 || m.sending != nil
}

// shortData is the maximum length of data, in bytes, that is copied behind its header to be sent as
// short. Longer data does not fit into the inlined work requests of rc and is copied by bcopy anyway.
const shortData = 256 - wire.NameLen

// shortMsg is the part of a short message behind its first word.
type shortMsg [wire.NameLen + shortData]byte

// joinedWords sends messages of two words over a lane that has only messages of one word: it copies the second word
// before the data.
type joinedWords struct {
	am    uct.AMSender
	short *shortMsg
}

// AMWords implements uct.AMWordSender.
func (j *joinedWords) AMWords(id uint8, first, second uint64, payload []byte) error {
	b := j.short[:wire.NameLen+len(payload)]
	binary.LittleEndian.PutUint64(b, second)
	shortcopy.Copy(b[wire.NameLen:], payload)
	return j.am.AMShort(id, first, b)
}

// messaging returns the messages state of the EP, and creates it first if needed.
func (e *EP) messaging() *messages {
	if e.msgs == nil {
		e.newMessages()
	}
	return e.msgs
}

func (e *EP) newMessages() {
	e.msgs = &messages{e: e, self: e.id}
	e.msgs.unbind()
	e.roles.pinned |= handshake.Set(wireup.AM)
	e.msgs.Window = window.Closed()
	if e.link != nil {
		e.msgs.Resize(e.link.window)
		e.learnWindow()
	}
	e.each(func(p *protocol) func(*EP) { return p.messaging })
	e.bindMessages() // to a lane that puts or gets have made
}

// bindMessages permits messages in one call, unless a lane is missing, a fence or a message
// waits, or the first message must do extra work.
func (e *EP) bindMessages() {
	m := e.msgs
	if m == nil {
		return
	}
	m.unbind()
	x := e.lane(wireup.AM)
	if x == nil || !x.Connected || e.fence.count > 0 || e.state != epOpen || m.blocks(nil) || e.waiting.isReplaying() || e.origin.adopted || e.w.stats.spans.measures() {
		return
	}
	limits := &x.Iface.attr.AM
	m.am, m.words, m.name = x.AM, x.Words, e.link.conn.MessageEP()
	s := x.Iface.sends()
	m.maxCopy, m.minZcopy, m.maxCopyMem = s.eager, s.minZcopy, min(s.minZcopy, s.leastRndv(activeRndv, true))-1
	atOnce := proto.ShortestAnnounced - 1 // longer messages with OpParams.Mem may use rendezvous
	if m.words == nil {
		m.joined = joinedWords{x.AM, &e.w.messages.short}
		m.words, atOnce = &m.joined, shortData
	} else {
		m.maxWords = min(limits.MaxShort-wire.HeadLen, m.maxCopy)
	}
	m.maxShort = min(limits.MaxShort-wire.HeadLen, atOnce, m.maxCopy)
	if m.word = wire.ShortActive(m.name); wire.ShortEP(m.word) == m.name { // false if the peer has over 65536 EPs
		m.maxLong = min(limits.MaxShort-wire.WordLen, m.maxCopy)
		m.maxWord = min(m.maxLong, proto.ShortestAnnounced-1)
	}
	if m.slowTagSend {
		m.mayShort, m.mayCopy = m.maxShort, m.maxCopy
		m.maxShort, m.maxCopy = -1, -1
	}
	e.roles.atOnce = uint16(min(max(min(m.maxShort, m.maxWord), -1)+1, math.MaxUint16))
}

// unbind makes all messages take the slow path.
func (m *messages) unbind() {
	m.am, m.words = nil, nil
	m.maxShort, m.maxCopy, m.maxWords, m.maxWord, m.maxLong = -1, -1, -1, -1, -1
	m.mayShort, m.mayCopy = -1, -1
	m.e.roles.atOnce = 0
}

// short sends a message in one call, and charges it. The caller has compared the length with maxShort.
// ErrNoResource: there is no credit, or the lane has no resources.
func (m *messages) short(id uint8, word uint64, data []byte) error {
	if m.Credit < charge(len(data)) {
		return uct.ErrNoResource
	}
	err := m.words.AMWords(id, word, m.name, data)
	if err == nil {
		m.Credit -= charge(len(data))
	}
	return err
}

// copied is short by AMBcopy. The caller has compared the length with maxCopy.
func (m *messages) copied(w *Worker, id uint8, word uint64, header, data []byte) error {
	n := charge(len(header) + len(data))
	if m.Credit < n {
		return uct.ErrNoResource
	}
	err := w.messages.eager.send(m.am, id, wire.Head{Word: word, EP: m.name}, header, data)
	if err == nil {
		m.Credit -= n
	}
	return err
}

// unheaded sends a message of up to maxCopy bytes without a header, by short or copied.
func (m *messages) unheaded(w *Worker, id uint8, word uint64, data []byte) error {
	if len(data) <= m.maxWords {
		return m.short(id, word, data)
	}
	return m.copied(w, id, word, nil, data)
}

// eagerMsg packs a complete message into a transport buffer.
type eagerMsg struct {
	head         wire.Head
	header, data []byte
}

// send sends a message by bcopy.
func (m *eagerMsg) send(am uct.AMSender, id uint8, h wire.Head, header, data []byte) error {
	m.head, m.header, m.data = h, header, data
	_, err := am.AMBcopy(id, m)
	m.header, m.data = nil, nil
	return err
}

// Pack copies the message.
func (m *eagerMsg) Pack(dst []byte) int {
	binary.LittleEndian.PutUint64(dst, m.head.Word)
	binary.LittleEndian.PutUint64(dst[8:], m.head.EP)
	n := wire.HeadLen + copy(dst[wire.HeadLen:], m.header)
	return n + bulk.Copy(dst[n:], m.data)
}

// replayQueued replays waiting messages, if there are any.
func (e *EP) replayQueued() {
	if e.waiting.messages() > 0 && e.state <= epClosing && e.closing.aborting == ucs.StatusOK {
		e.replayMessages()
	}
}

// returnDiscarded returns the credit of messages that a closing loop-back has discarded, so that queued sends proceed.
func (e *EP) returnDiscarded() {
	m := e.msgs
	if m == nil {
		return
	}
	if m.UpdateDue(); m.Due > 0 {
		m.grant()
	}
	m.Measure()
	e.replayQueued()
}

// sendEcho sends an echo if the EP is a loop-back and needs one. It reports whether the EP must wait for an echo
// before it disconnects.
func (e *EP) sendEcho() bool {
	if !e.deliversLast() || e.lane(wireup.AM) == nil {
		return false
	}
	m := e.messaging()
	if m.echoes == echoes || m.echoes > 0 && e.awaited.first != nil {
		return false
	}
	m.echoes++
	r := e.w.newRequest(e, &echoStage)
	r.assignID()
	r.awaitPeer()
	e.control(ackControl, r.remote, uint64(ucs.StatusOK))
	r.posted()
	r.Release()
	return true
}

// echoStage sends a message to the closing loop-back itself. When it arrives, all messages
// that were posted before have arrived.
var echoStage = stage{name: "close", role: noRole, done: (*Request).echoed}

// echoes is the number of echoes: the first follows the last operation, the second follows the replies to it.
const echoes = 2

// echoed completes the synchronous sends whose messages match no receive: all acknowledgements have arrived.
func (r *Request) echoed() {
	e := r.ep
	r.complete(r.comp.Status)
	if e.deliversLast() {
		e.msgs.endUnmatched()
	}
}

// endUnmatched completes the synchronous sends that wait for a receive, with StatusPeerClosed.
func (m *messages) endUnmatched() {
	for r := m.e.awaited.first; r != nil; {
		next := r.next
		if r.msg != nil && r.msg.acked && !r.stage.announces && r.place() != placeDelegated {
			r.comp.Complete(ucs.StatusPeerClosed)
		}
		r = next
	}
}

// acknowledge sends an ACK with a status for a message of the peer that awaits it.
func (m *messages) acknowledge(id uint64, st ucs.Status) {
	e := m.e
	switch {
	case e.msgs != m:
	case e.state == epOpen:
		e.control(ackControl, id, uint64(st))
	case e.deliversLast(): // now, because endUnmatched completes messages without an ACK
		e.w.handleAck(&wire.Control{ID: id, Value: uint64(st)}, e)
	}
}
