package layer

import (
	"encoding/binary"
	"fmt"
)

// Messenger exchanges numbered messages and notes with the peer for a layer. It passes received
// messages to its Inbox and received notes to its Note.
type Messenger interface {
	// Send sends the message with a number. It returns false if there is no room now.
	Send(number uint64) (bool, error)
	// SendNote sends a note. It returns false if there is no room now.
	SendNote(v uint64) (bool, error)
	// Progress makes progress once. 0 means idle.
	Progress() (int, error)
	// Drained reports whether all sent messages have released their buffers.
	Drained() bool
}

// NoteLen is the length of a note in bytes.
const NoteLen = 8

// Note is a counter from the peer. A sender requests an acknowledgement of that number of messages;
// a target reports the number of received messages.
type Note struct {
	Value uint64 // value of the last one
	Err   error
}

// Receive records a received note.
func (n *Note) Receive(data []byte) {
	if len(data) != NoteLen {
		n.Err = fmt.Errorf("%w: a note of %d bytes", ErrData, len(data))
		return
	}
	n.Value = binary.LittleEndian.Uint64(data)
}

// exchange is one side of an exchange of messages.
type exchange struct {
	Messenger
	in   *Inbox
	note *Note
	sent uint64
	idle Idle // of the initiator
}

// try sends the next message if there is room.
func (x *exchange) try() (bool, error) {
	ok, err := x.Send(x.sent)
	if ok {
		x.sent++
	}
	return ok, err
}

// Post waits for room and sends the next message. It implements Op for operations that do not limit the number of
// messages.
func (x *exchange) Post() error {
	for {
		ok, err := x.try()
		if ok || err != nil {
			return err
		}
		if err := x.Poll(); err != nil {
			return err
		}
	}
}

// Poll implements Op.
func (x *exchange) Poll() error {
	n, err := x.Messenger.Progress()
	if n > 0 || err != nil {
		return err
	}
	return x.idle.Poll()
}

// drain waits until all sent messages have released their buffers.
func (x *exchange) drain() error {
	for !x.Drained() {
		if err := x.Poll(); err != nil {
			return err
		}
	}
	return nil
}

// Result implements Op.
func (x *exchange) Result() uint64 { return 0 }

// State implements Stater.
func (x *exchange) State() string {
	arrived := "not counted here"
	if x.in != nil {
		arrived = fmt.Sprintf("%d, error %v", x.in.Count, x.in.Err)
	}
	return fmt.Sprintf("messages sent: %d; arrived: %s; latest note of the peer: %d\n", x.sent, arrived, x.note.Value)
}

// NewMessageOp returns the initiator's side of an operation with messages. in receives the replies
// of a ping-pong; note, in other operations, the number of messages that the target has received. A
// loopback receives its own messages. idle is polled while the initiator waits.
func NewMessageOp(m Messenger, s Spec, in *Inbox, note *Note, idle Idle, loopback bool) Op {
	x := exchange{Messenger: m, in: in, note: note, idle: idle}
	if !s.Kind.OneWay() {
		if s.Window > 1 {
			return &duplex{pinger{x}, uint64(s.Window)}
		}
		return &pinger{x}
	}
	st := &stream{exchange: x, window: uint64(s.Window), delivered: &in.Count, fault: &in.Err}
	if !loopback {
		st.in, st.delivered, st.fault = nil, &note.Value, &note.Err
	}
	return st
}

// NewMessagePart returns the target's side: in receives the messages, and note the requests for
// acknowledgements.
func NewMessagePart(m Messenger, s Spec, in *Inbox, note *Note) Part {
	x := exchange{Messenger: m, in: in, note: note}
	if !s.Kind.OneWay() {
		return &echo{x}
	}
	return &sink{exchange: x, every: uint64(max(s.Window/2, 1))}
}

// pinger is the initiator of a ping-pong. A loopback receives its own message; that is the round
// trip then, as in ucx_perftest.
type pinger struct{ exchange }

// Flush waits for the reply.
func (p *pinger) Flush() error {
	for p.in.Count != p.sent {
		if err := p.Poll(); err != nil {
			return err
		}
	}
	return p.in.Err
}

// duplex is a pinger with a window of messages whose replies have not arrived.
type duplex struct {
	pinger
	window uint64
}

// Post implements Op.
func (d *duplex) Post() error {
	for d.sent-d.in.Count >= d.window {
		if err := d.Poll(); err != nil {
			return err
		}
	}
	return d.exchange.Post()
}

// Flush waits for all replies.
func (d *duplex) Flush() error {
	if err := d.pinger.Flush(); err != nil {
		return err
	}
	return d.drain()
}

// echo is the target of a ping-pong, and of messages in both directions.
type echo struct{ exchange }

// Progress implements Part.
func (e *echo) Progress() (int, error) {
	n, err := e.Messenger.Progress()
	for err == nil && e.sent != e.in.Count {
		var ok bool
		if ok, err = e.try(); !ok {
			break
		}
	}
	return n, err
}

// Finish implements Part.
func (e *echo) Finish() (uint64, error) { return e.in.Count, e.in.Err }

// stream sends messages in one direction, with at most window of them undelivered. in is that of a loopback;
// otherwise it is nil.
type stream struct {
	exchange
	window    uint64
	delivered *uint64 // number of messages that the peer has acknowledged; in a loopback, of received ones
	fault     *error  // in the acknowledgements; in a loopback, in the messages
}

// Post implements Op.
func (s *stream) Post() error {
	for {
		if s.sent-*s.delivered < s.window {
			ok, err := s.try()
			if ok || err != nil {
				return err
			}
		}
		if err := s.Poll(); err != nil {
			return err
		}
	}
}

// Flush requests an acknowledgement and waits until all messages have arrived.
func (s *stream) Flush() error {
	if s.in == nil {
		if err := s.requestAck(); err != nil {
			return err
		}
	}
	for *s.delivered != s.sent {
		if err := s.Poll(); err != nil {
			return err
		}
	}
	if err := s.drain(); err != nil {
		return err
	}
	return *s.fault
}

func (s *stream) requestAck() error {
	for {
		ok, err := s.SendNote(s.sent)
		if ok || err != nil {
			return err
		}
		if err := s.Poll(); err != nil {
			return err
		}
	}
}

// sink is the target of a stream. It acknowledges twice in a window, so that a sender as fast as
// the target never waits.
type sink struct {
	exchange
	acked uint64 // messages
	every uint64 // messages between two acknowledgements
}

// Progress implements Part.
func (k *sink) Progress() (int, error) {
	n, err := k.Messenger.Progress()
	if err != nil || k.in.Count-k.acked < k.every && !k.ackDue() {
		return n, err
	}
	ok, err := k.SendNote(k.in.Count)
	if ok {
		k.acked = k.in.Count
	}
	return n, err
}

// State implements Stater.
func (k *sink) State() string {
	return fmt.Sprintf("%sacknowledged: %d\n", k.exchange.State(), k.acked)
}

// ackDue reports that the initiator waits for an acknowledgement, and that all messages for it have
// arrived.
func (k *sink) ackDue() bool { return k.note.Value > k.acked && k.in.Count >= k.note.Value }

// Finish implements Part.
func (k *sink) Finish() (uint64, error) {
	if k.in.Err == nil && k.note.Err != nil {
		return k.in.Count, fmt.Errorf("synchronising: %w", k.note.Err)
	}
	return k.in.Count, k.in.Err
}
