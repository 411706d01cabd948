package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// Messages, streams, tags, rendezvous and tuple queues for tests of package ucp_test.

// Limits, most in bytes.
const (
	FirstWindow        = firstWindow
	DefaultEagerWindow = defaultEagerWindow
	WideWindow         = wideWindow
	WideAfter          = wideAfter
	DefaultRndvThresh  = defaultRndvThresh
	DefaultPeerBudget  = defaultPeerBudget
	DepartedCharge     = departedCharge
	LeastWindowMemory  = leastWindowMemory
	MaxMessage         = maxMessage
	MaxEager           = maxEager
	MaxCredit          = maxCredit
	MaxStoredKey       = maxKeptKey
	MaxSmallKey        = maxSmallKey
	MinStreamAsked     = minStreamAsked
	CopySlotLen        = copySlotLen
	MaxPieces          = maxPieces      // of a list
	ReservedRounds     = reservedRounds // rounds of Progress
)

// Messages is the state of an EP for messages.
type Messages = messages

// ActiveWord is the word of the header of an active message.
func ActiveWord(id uint16, header []byte) uint64 { return activeWord(id, header) }

// BeyondFirst is the part of a window that counts as granted, in bytes.
func BeyondFirst(size int64) int64 { return beyondFirst(size) }

// Messages returns the state of e for messages, with the window; nil before the first message.
func (e *EP) Messages() *messages { return e.msgs }

// Messaging is Messages, and makes the state at the first call.
func (e *EP) Messaging() *messages { return e.messaging() }

// WaitingMessages is the number of messages that wait.
func (e *EP) WaitingMessages() int { return e.waiting.messages() }

// ReplayMessages starts messages that wait.
func (e *EP) ReplayMessages() { e.replayMessages() }

// AnnouncedFrom returns the length from which messages from mem, or from other memory if mem is nil, use rendezvous.
func (e *EP) AnnouncedFrom(mem *Mem) proto.Threshold {
	return e.rndvThreshold(tagRndv, e.classOf((*region.Mem)(mem)), false)
}

// OverlappedFrom is AnnouncedFrom with PreferThroughput.
func (e *EP) OverlappedFrom(mem *Mem) proto.Threshold {
	return e.rndvThreshold(tagRndv, e.classOf((*region.Mem)(mem)), true)
}

// DropIncoming drops what has arrived in part.
func (e *EP) DropIncoming() {
	e.endEach(0, func(p *protocol) func(*EP, ucs.Status) { return p.incomingLost })
	e.msgs.dropStream()
}

// GrantedCredit is the sum of the windows of all EPs, minus FirstWindow for each, in bytes.
func (w *Worker) GrantedCredit() int64 { return w.messages.granted }

// LeftBytes is the charge of unreceived messages of closed EPs.
func (w *Worker) LeftBytes() int64 { return w.messages.leftBytes }

// LeftOf is LeftBytes by the UUID of the peer.
func (w *Worker) LeftOf() map[uint64]int64 { return w.messages.leftOf }

// LeftRoom is the charge that closed EPs to a peer may have, in bytes.
func (w *Worker) LeftRoom(uuid uint64) int64 { return w.leftRoom(uuid) }

// LeftOver reports whether w has messages of closed EPs.
func (w *Worker) LeftOver() bool { return w.tag.leftFirst != nil || w.tag.leftLast != nil }

// Closed reports whether the EP has closed or started over.
func (m *messages) Closed() bool { return m.closed }

// MaxCopy is the maximum length of a message in one call by bcopy; -1 if there is none.
func (m *messages) MaxCopy() int { return m.maxCopy }

// Blocked reports whether a new message must wait.
func (m *messages) Blocked() bool { return m.blocks(nil) }

// Inbound returns the oldest message that has arrived in part.
func (m *messages) Inbound() *inbound { return m.inbound }

// Next returns the next message that has arrived in part.
func (in *inbound) Next() *inbound { return in.next }

// Total is the length of the message.
func (in *inbound) Total() int { return in.total }

// Got is the number of bytes that have arrived.
func (in *inbound) Got() int { return in.got }

// AnnouncedCount is the number of messages whose data is still at the peer.
func (m *messages) AnnouncedCount() (n int) {
	for a := m.rndv.first; a != nil; a = a.next {
		n++
	}
	return n
}

// HasIndex reports whether m has an index of announced messages by their id.
func (m *messages) HasIndex() bool { return m.rndv.byName != nil }

// EverIndexed is the number of messages that were ever entered into the index.
func (m *messages) EverIndexed() uint64 { return m.rndv.steps }

// Stream returns the stream; nil before the first use.
func (m *messages) Stream() *stream { return m.stream }

// Streaming is Stream, and makes the stream at the first call.
func (m *messages) Streaming() *stream { return m.streaming() }

// ReceiveOffset is the offset of the next byte to receive.
func (s *stream) ReceiveOffset() uint64 { return s.came }

// SendOffset is the offset of the next byte to send.
func (s *stream) SendOffset() uint64 { return s.sent }

// Starved reports whether a send waits for credit.
func (s *stream) Starved() bool { return s.starved }

// RequestedBytes is the number of bytes of an RTS to which the peer has not replied.
func (s *stream) RequestedBytes() int { return s.asked }

// Refused is the number of successive RTS whose bytes the peer did not read.
func (s *stream) Refused() uint { return s.refused }

// EagerSends is the number of next sends without rendezvous.
func (s *stream) EagerSends() int { return s.eagerSends }

// Unread is the memory of bytes that were not received.
func (s *stream) Unread() (n int) {
	for d := s.unread.first; d != nil; d = d.next {
		n += cap(d.buf)
	}
	return n
}

// StreamSendCounted is StreamSend, and stores the number of bytes that were posted at once.
func (e *EP) StreamSendCounted(buf []byte, sent *int) (*Request, error) {
	return e.streamSend(buf, nil, sent)
}

// AnnouncesStream reports whether r sends bytes of a stream by rendezvous.
func (r *Request) AnnouncesStream() bool { return r.stage == &streamChannel.announce }

// FetchedBy reports whether r fetches data with the scheme.
func (r *Request) FetchedBy(s proto.Scheme) bool { return r.stage == &fetchStages[s] }

// RndvScheme returns the configured scheme.
func (c *Context) RndvScheme() proto.Scheme { return c.cfg.rndvScheme() }

// CopyLocally receives a message without data.
func (m *ActiveMessage) CopyLocally() error { return m.copyTo(nil, action{stage: &activeRecv}) }

// MessagesOf returns the messages to whose window m is charged.
func (m *ActiveMessage) MessagesOf() *messages { return m.msgs }

// RemoteAddr returns the address of the data at the sender.
func (m *ActiveMessage) RemoteAddr() *uint64 { return &m.rndv.addr }

// WaitsForReceive reports whether the receiver has not fetched the message of r yet.
func (r *Request) WaitsForReceive() bool { return r.waitsForReceive() }

// Offered reports whether the message of r was offered out of turn.
func (r *Request) Offered() bool { return r.isOffered() }

// Tags returns the table of receives and unexpected messages.
func (w *Worker) Tags() *match.Table[*tagRecv, *TagMessage] { return &w.tag.table }

// TagSourceOf returns the tags that a peer may send; ok is false if every peer may send every tag.
func (w *Worker) TagSourceOf(key wireup.PublicKey) (bits uint64, ok bool) {
	return w.tag.sources.bits[key], w.tag.sources.mask != 0
}

// TagSources is the number of peers with a rule of RestrictTags.
func (w *Worker) TagSources() int { return len(w.tag.sources.bits) }

// BlockedSenders is the number of peers without credit, and of messages that they have offered for a probe.
func (w *Worker) BlockedSenders() (n, reserved int) {
	for _, b := range w.tag.blocked {
		if b.reserved != nil {
			reserved++
		}
	}
	return len(w.tag.blocked), reserved
}

// CancelReceives cancels all receives.
func (w *Worker) CancelReceives() { w.cancelReceives() }

// Query is the latest query to the peer.
func (m *messages) Query() *wire.Query { return &m.tag.sender.query }

// Incomplete reports whether parts of the message have not arrived.
func (u *TagMessage) Incomplete() bool { return u.in != nil }

// Announced reports whether the data is at the sender.
func (u *TagMessage) Announced() bool { return u.rndv != nil }

// BufferLen is the length of the buffer of the message.
func (u *TagMessage) BufferLen() int { return cap(u.buf) }

// Charge is what the message is charged for, in bytes.
func (u *TagMessage) Charge() int { return u.charge() }

// Slack is what is charged for the rest of the buffer, in bytes.
func (u *TagMessage) Slack() int64 { return u.slack() }

// MessagesOf returns the messages to whose window u is charged.
func (u *TagMessage) MessagesOf() *messages { return u.msgs }

// TupleQueues returns the receiver of tuple queues.
func (w *Worker) TupleQueues() *tuple.Receiver[*tagRecv, *TagMessage] { return &w.tuples.in }

// TupleLink returns the state of m for tuple queues.
func (m *messages) TupleLink() *tupleLink { return m.tuple }

// Tell sends the peer a control message about a queue with any content.
func (l *tupleLink) Tell(tag uint64, kind wire.TupleKind, number uint32, value uint64) {
	r := l.m.e.w.newRequest(l.m.e, &tupleStage)
	*recordOf[tupleRecord](r) = tupleRecord{tag: tag, value: value, number: number, kind: kind}
	r.answer()
}

// TupleSender returns the sender of tuple queues.
func (m *messages) TupleSender() *tuple.Sender { return &m.tuple.out }

// TupleQueues is the number of queues for the peer.
func (m *messages) TupleQueues() int { return m.tuple.queues }

// Latest returns the messages of the EP from which a message last arrived.
func (w *Worker) Latest() *messages { return w.messages.latest }
