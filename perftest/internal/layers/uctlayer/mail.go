package uctlayer

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/uct"
)

// Active messages of the layer.
const (
	idData = iota + 1 // numbered messages of the initiator
	idEcho            // the answers in a ping-pong, numbered too
	idSync            // asks for an idAck
	idAck             // how many idData have come
)

// numberLen is the length in bytes of the number that a message begins with; shorter
// messages have its low bytes.
const numberLen = 8

// mail sends numbered messages, the rest of which is the local buffer.
type mail struct {
	*op
	am   uct.AMSender
	id   uint8
	sent uint64
	head [numberLen]byte
}

// newMail chooses how o sends messages of s under id.
func newMail(o *op, s layer.Spec, id uint8) (*mail, error) {
	m := &mail{op: o, id: id}
	m.am = o.ep.Ops().AM
	n := min(numberLen, s.Size)
	o.iov[0].Buf = o.buf[n:]
	l := &o.iface.Attr().AM
	zcopyMax := l.MaxZcopy
	if l.MaxHeader < n {
		zcopyMax = 0
	}
	return m, o.pick(s, []way{
		{layer.Short, uct.CapAMShort, numberLen, l.MaxShort, m.short},
		{layer.Zcopy, uct.CapAMZcopy, l.MinZcopy, zcopyMax, m.zcopy},
		{layer.Bcopy, uct.CapAMBcopy, 0, l.MaxBcopy, m.bcopy},
	})
}

func (m *mail) short() error { return m.am.AMShort(m.id, m.sent, m.buf[numberLen:]) }

func (m *mail) bcopy() error {
	_, err := m.am.AMBcopy(m.id, m)
	return err
}

// Pack implements uct.Packer.
func (m *mail) Pack(dst []byte) int {
	return m.number(dst) + copy(dst[min(numberLen, len(m.buf)):], m.iov[0].Buf)
}

// number writes the number of the next message to dst and returns its length.
func (m *mail) number(dst []byte) int {
	if len(m.buf) >= numberLen {
		binary.LittleEndian.PutUint64(dst, m.sent)
		return numberLen
	}
	binary.LittleEndian.PutUint64(m.head[:], m.sent)
	return copy(dst, m.head[:len(m.buf)])
}

// zcopy sends the number as header, which is copied: the same buffer may be in
// several messages at once.
func (m *mail) zcopy() error {
	n := m.number(m.head[:])
	iov := m.iov[:]
	if len(m.iov[0].Buf) == 0 {
		iov = nil
	}
	m.comp.Count++
	return m.counted(m.am.AMZcopy(m.id, m.head[:n], iov, &m.comp))
}

// try sends the next message if there is room. Errors: uct.ErrNoResource.
func (m *mail) try() error {
	err := m.post()
	if err == nil {
		m.sent++
	}
	return err
}

// push sends the next message, and waits for room.
func (m *mail) push() error {
	for {
		err := m.try()
		if err != uct.ErrNoResource {
			return err
		}
		if err := m.progress(); err != nil {
			return err
		}
	}
}

// inbox receives numbered messages. Every one is checked for length, number and last
// byte; a thorough one for all bytes.
type inbox struct {
	count    uint64
	want     []byte // contents, but for the number
	last     byte
	numbered bool // with a whole number
	thorough bool
	err      error // what was wrong first
}

func newInbox(s layer.Spec) *inbox {
	in := &inbox{want: make([]byte, s.Size), numbered: s.Size >= numberLen, thorough: s.Thorough}
	pattern.Fill(in.want, s.Seed)
	in.last = in.want[s.Size-1]
	return in
}

// HandleAM implements uct.AMHandler.
func (in *inbox) HandleAM(data []byte, _ uct.Desc) bool {
	if !in.quick(data) || in.thorough {
		in.check(data)
	}
	in.count++
	return false
}

// quick reports whether length, number and last byte are right; of a message without
// a whole number it reports false.
func (in *inbox) quick(data []byte) bool {
	return in.numbered && len(data) == len(in.want) && binary.LittleEndian.Uint64(data) == in.count &&
		(len(data) == numberLen || data[len(data)-1] == in.last)
}

// check looks at everything, and keeps the first fault.
//
//go:noinline
func (in *inbox) check(data []byte) {
	var number [numberLen]byte
	binary.LittleEndian.PutUint64(number[:], in.count)
	n := min(numberLen, len(in.want))
	switch {
	case in.err != nil || len(data) == len(in.want) && bytes.Equal(data[:n], number[:n]) && bytes.Equal(data[n:], in.want[n:]):
	case len(data) != len(in.want):
		in.err = fmt.Errorf("%w: message %d has %d bytes, want %d", layer.ErrData, in.count, len(data), len(in.want))
	case !bytes.Equal(data[:n], number[:n]):
		in.err = fmt.Errorf("%w: message %d has the number %#x (%d bytes of it)", layer.ErrData, in.count, data[:n], n)
	default:
		in.err = fmt.Errorf("%w: message %d arrived with wrong contents", layer.ErrData, in.count)
	}
}

// word receives messages of 8 bytes and keeps the last.
type word struct {
	value uint64
	count uint64
	err   error
}

// HandleAM implements uct.AMHandler.
func (w *word) HandleAM(data []byte, _ uct.Desc) bool {
	if len(data) != numberLen {
		w.err = fmt.Errorf("%w: control message of %d bytes", layer.ErrData, len(data))
		return false
	}
	w.value = binary.LittleEndian.Uint64(data)
	w.count++
	return false
}

// note sends a control message of 8 bytes, by whatever variant there is.
type note struct {
	am    uct.AMSender
	short bool
	id    uint8
	value uint64
}

func newNote(o *op, id uint8) *note {
	n := &note{id: id, short: o.iface.Attr().Caps.Has(uct.CapAMShort)}
	n.am = o.ep.Ops().AM
	return n
}

// send tries to send v. Errors: uct.ErrNoResource.
func (n *note) send(v uint64) error {
	if n.short {
		return n.am.AMShort(n.id, v, nil)
	}
	n.value = v
	_, err := n.am.AMBcopy(n.id, n)
	return err
}

// Pack implements uct.Packer.
func (n *note) Pack(dst []byte) int {
	binary.LittleEndian.PutUint64(dst, n.value)
	return numberLen
}
