package uctlayer

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct"
)

// Active messages of the layer.
const (
	idData = iota + 1 // numbered messages of the initiator
	idEcho            // numbered replies in a ping-pong
	idSync            // requests an idAck
	idAck             // number of received idData
)

// sender sends numbered messages. The bytes after the number are those of the local buffer.
type sender struct {
	*op
	am   uct.AMSender
	id   uint8
	sent uint64
	head [layer.NumberLen]byte
}

// newSender selects the variant by which o sends messages of s with id.
func newSender(o *op, s layer.Spec, id uint8) (*sender, error) {
	m := &sender{op: o, id: id}
	m.am = o.ep.Ops().AM
	n := min(layer.NumberLen, s.Size)
	o.iov[0].Buf = o.buf[n:]
	l := &o.iface.Attr().AM
	zcopyMax := l.MaxZcopy
	if l.MaxHeader < n {
		zcopyMax = 0
	}
	return m, o.pick(s, []way{
		{layer.Short, uct.CapAMShort, layer.NumberLen, l.MaxShort, func(*op) error { return m.short() }},
		{layer.Zcopy, uct.CapAMZcopy, l.MinZcopy, zcopyMax, func(*op) error { return m.zcopy() }},
		{layer.Bcopy, uct.CapAMBcopy, 0, l.MaxBcopy, func(*op) error { return m.bcopy() }},
	})
}

func (m *sender) short() error { return m.am.AMShort(m.id, m.sent, m.buf[layer.NumberLen:]) }

func (m *sender) bcopy() error {
	_, err := m.am.AMBcopy(m.id, m)
	return err
}

// Pack implements uct.Packer.
func (m *sender) Pack(dst []byte) int {
	n := layer.PutNumber(dst[:min(len(dst), len(m.buf))], m.sent)
	return n + copy(dst[n:], m.iov[0].Buf)
}

// zcopy sends the number as header, which is copied: the same buffer may be in several messages at
// a time.
func (m *sender) zcopy() error {
	n := layer.PutNumber(m.head[:min(len(m.head), len(m.buf))], m.sent)
	iov := m.iov[:]
	if len(m.iov[0].Buf) == 0 {
		iov = nil
	}
	m.comp.Count++
	return m.counted(m.am.AMZcopy(m.id, m.head[:n], iov, &m.comp))
}

// try sends the next message if there is room. Errors: uct.ErrNoResource.
func (m *sender) try() error {
	err := m.post(m.op)
	if err == nil {
		m.sent++
	}
	return err
}

// push waits for room and sends the next message.
func (m *sender) push() error {
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

// inbox receives numbered messages.
type inbox struct{ layer.Inbox }

func newInbox(s layer.Spec) *inbox { return &inbox{layer.NewInbox(s)} }

// HandleAM implements uct.AMHandler.
func (in *inbox) HandleAM(data []byte, _ uct.Desc) bool {
	in.Receive(data)
	return false
}

// word receives messages of 8 bytes and stores the last.
type word struct {
	value uint64
	count uint64
	err   error
}

// HandleAM implements uct.AMHandler.
func (w *word) HandleAM(data []byte, _ uct.Desc) bool {
	if len(data) != layer.NumberLen {
		w.err = fmt.Errorf("%w: control message of %d bytes", layer.ErrData, len(data))
		return false
	}
	w.value = binary.LittleEndian.Uint64(data)
	w.count++
	return false
}

// note sends a control message of 8 bytes, by any variant of the transport.
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
	return layer.NumberLen
}
