package verbslayer

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

const (
	// slotLen is the length of a receive in bytes: the segment size of uct/ib/rc.
	slotLen = 8 << 10
	// spareReceives is the number of receives for notes, in addition to those for the messages of a window: at most two
	// notes are in flight.
	spareReceives = 8
	// lookSends is the number of idle polls of the receive queue between two polls of the send queue, whose completions
	// report a dead peer.
	lookSends = 16
)

// receives is the number of receives of the QP: at least one for each message in flight, so that the sender never gets
// an RNR NAK.
func (c *Conn) receives() int { return c.queues.depth + spareReceives }

// messenger is a layer.Messenger over send and receive. A note has an immediate; its value is not used.
type messenger struct {
	*op
	in     *layer.Inbox
	note   *layer.Note
	buf    []byte
	empty  uint8 // idle polls of receives
	noteWR [1]verbs.SendWR
	recv   [1]verbs.RecvWR
}

// newMessenger posts the receives, unless they are posted, and limits the window of s to their number.
func newMessenger(o *op, s *layer.Spec) (*messenger, error) {
	if s.Size > slotLen {
		return nil, &layer.LimitError{Transport: o.cfg.Transport, Spec: *s, Limit: fmt.Sprintf("receives of verbs have %d bytes", slotLen)}
	}
	s.Window = min(s.Window, o.queues.depth)
	o.window, o.remaining = s.Window, s.Window
	in := layer.NewInbox(*s)
	in.Repeats = o.wr[0].Inline == nil
	m := &messenger{op: o, in: &in, note: &layer.Note{}, buf: o.local.Bytes()[:s.Size]}
	m.recv[0].SGList = make([]verbs.SGE, 1)
	if err := m.open(); err != nil {
		return nil, err
	}
	m.noteWR[0] = verbs.SendWR{Opcode: verbs.OpSendWithImm}
	if o.queues.inline < layer.NoteLen {
		m.noteWR[0].SGList = []verbs.SGE{o.slots.SGE(m.noteSlot(), layer.NoteLen)}
	} else {
		m.noteWR[0].Flags, m.noteWR[0].Inline = verbs.SendInline, m.noteBytes()
	}
	return m, nil
}

// open creates and posts all receives, once for each connection.
func (m *messenger) open() (err error) {
	if m.slots != nil {
		return nil
	}
	if m.slots, err = m.alloc((m.receives() + 1) * slotLen); err != nil {
		return err
	}
	for i := range m.receives() {
		if err := m.post(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// post posts the receive of a slot.
func (m *messenger) post(slot uint64) error {
	m.recv[0].ID = slot
	m.recv[0].SGList[0] = m.slots.SGE(int(slot)*slotLen, slotLen)
	_, err := m.qp.PostRecv(m.recv[:])
	return err
}

func (m *messenger) noteSlot() int { return m.receives() * slotLen }

func (m *messenger) noteBytes() []byte { return m.slots.Bytes()[m.noteSlot():][:layer.NoteLen] }

// Send implements layer.Messenger. A buffer that is not sent inline is in use until its work request completes;
// messages sent until then have the same number. The first message of an operation finds the buffer free: all messages
// of the previous operation have arrived, also the unsignaled ones.
func (m *messenger) Send(number uint64) (bool, error) {
	if m.wr[0].Inline == nil && m.done != m.posted {
		if err := m.reap(); err != nil {
			return false, err
		}
	}
	if m.wr[0].Inline != nil || m.done == m.posted || number == 0 {
		layer.PutNumber(m.buf, number)
	}
	err := m.Post()
	return err == nil, err
}

// reap polls completions of sends.
func (m *messenger) reap() error {
	n := m.cq.Poll(m.wc[:])
	if n == 0 {
		return nil
	}
	return m.handleCompletions(n)
}

// SendNote implements layer.Messenger. A later note may replace one that is in flight.
func (m *messenger) SendNote(v uint64) (bool, error) {
	if err := m.room(); err != nil {
		return false, err
	}
	binary.LittleEndian.PutUint64(m.noteBytes(), v)
	wr := &m.noteWR[0]
	wr.Flags |= verbs.SendSignaled
	m.posted++
	m.signaled = m.posted
	wr.ID = m.posted
	_, err := m.qp.PostSend(m.noteWR[:])
	return err == nil, err
}

// Progress implements layer.Messenger.
func (m *messenger) Progress() (int, error) {
	n := m.recvCQ.Poll(m.wc[:])
	switch {
	case n < 0:
		return 0, errOverrun
	case n == 0:
		if m.empty++; m.empty%lookSends != 0 {
			return 0, nil
		}
		return 0, m.reap()
	}
	for i := range m.wc[:n] {
		if err := m.handleReceive(&m.wc[i]); err != nil {
			return n, err
		}
	}
	return n, nil
}

// handleReceive receives a message or a note, and posts its receive again.
func (m *messenger) handleReceive(wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return failed(wc)
	}
	data := m.slots.Bytes()[int(wc.ID)*slotLen:][:wc.ByteLen]
	if wc.Flags&verbs.WCWithImm != 0 {
		m.note.Receive(data)
	} else {
		m.in.Receive(data)
	}
	return m.post(wc.ID)
}

// Drained implements layer.Messenger. The sender may reuse the buffers of delivered messages.
func (m *messenger) Drained() bool { return true }
