package instr

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/uct"
)

// messages are the active messages of a rig, from the near side to the far side.
type messages struct {
	sender  uct.AMSender
	arrived int    // number of the repetition
	last    []byte // number of the last received message
	refused bool   // there was no room for the message of the repetition
	room    uct.PendingReq
}

// amID is the id of the rig's messages.
const amID = 1

// headerLen is the length of the header of AMShort, in bytes.
const headerLen = 8

// open installs the handler on the far side, and sends a first message: some transports connect
// then.
func (m *messages) open(r *uctRig) error {
	m.sender, m.last = r.ep.Ops().AM, make([]byte, 0, maxSize)
	if err := r.far.Iface().SetAMHandler(amID, m); err != nil {
		return err
	}
	r.buf = r.near.Local()[:headerLen]
	for range polls {
		_, err := m.sender.AMBcopy(amID, r)
		if err == nil {
			return m.deliver(r)
		}
		if err != uct.ErrNoResource {
			return err
		}
		r.progress()
	}
	return errStuck
}

// HandleAM implements uct.AMHandler. Its instructions are not counted.
func (m *messages) HandleAM(data []byte, _ uct.Desc) (keep bool) {
	m.arrived++
	m.last = append(m.last[:0], data...)
	return false
}

// steps returns the steps for one message of c.Size bytes.
func (m *messages) steps(r *uctRig, c Case) (steps, error) {
	limit, short := r.iface.Attr().AM, c.Op == AMShort || c.Op == AMShortRecv
	switch {
	case short && c.Size < headerLen:
		return steps{}, fmt.Errorf("shorter than its header: %w", unsupported(c))
	case short && c.Size > limit.MaxShort || c.Size > limit.MaxBcopy:
		return steps{}, fmt.Errorf("longer than the transport takes: %w", unsupported(c))
	}
	send := func() error {
		_, err := m.sender.AMBcopy(amID, r)
		return m.posted(err)
	}
	if short {
		buf := r.buf
		send = func() error {
			return m.posted(m.sender.AMShort(amID, binary.LittleEndian.Uint64(buf), buf[headerLen:]))
		}
	}
	prepare := func() error {
		if err := m.makeRoom(r); err != nil {
			return err
		}
		m.arrived = 0
		return r.change()
	}
	if c.Op == AMShort || c.Op == AMBcopy {
		return steps{before: prepare, op: send, after: func() error { return m.deliver(r) }}, nil
	}
	return steps{before: func() error {
		if err := prepare(); err != nil {
			return err
		}
		return send()
	}, op: func() error { return m.receive(r) }, after: func() error { return m.deliver(r) }}, nil
}

// posted handles the result of a post. After ErrNoResource the repetition is void: room is freed by
// the far side, whose device may not have run while the previous messages were sent.
func (m *messages) posted(err error) error {
	if err != uct.ErrNoResource {
		return err
	}
	m.refused = true
	return errVoid
}

// makeRoom waits until there is room, if there was none for the last message.
func (m *messages) makeRoom(r *uctRig) error {
	if !m.refused {
		return nil
	}
	m.refused = false
	there := false
	m.room.Func = func(*uct.PendingReq) error { there = true; return nil }
	if err := r.ep.AddPending(&m.room); err != nil {
		if err == uct.ErrBusy {
			return nil
		}
		return err
	}
	for range polls {
		if r.progress(); there {
			return nil
		}
	}
	return errStuck
}

// receive is one progress of the far side, which must deliver the message.
func (m *messages) receive(r *uctRig) error {
	r.far.Progress()
	if m.arrived == 0 {
		return errVoid
	}
	return nil
}

// deliver progresses both sides until the message is delivered and its send is complete, and
// compares the data.
func (m *messages) deliver(r *uctRig) error {
	if m.refused {
		return nil
	}
	for range polls {
		if r.progress() == 0 && m.arrived > 0 {
			break
		}
	}
	switch {
	case m.arrived != 1:
		return fmt.Errorf("%d messages have come: %w", m.arrived, errStuck)
	case !bytes.Equal(m.last, r.buf):
		return errCorrupt
	}
	return nil
}
