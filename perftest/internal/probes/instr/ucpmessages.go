package instr

import (
	"bytes"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/ucp"
)

// ucpMessages are the active messages of a ucpRig, from the near end to the far one.
type ucpMessages struct {
	arrived int    // of the repetition
	last    []byte // the last that has arrived
}

// open installs the handler at the far end, and sends a first message, which prepares
// both ends for more.
func (m *ucpMessages) open(r *ucpRig) error {
	m.last = make([]byte, 0, maxSize)
	r.peer.OnActive(amID, m.handle)
	if err := m.send(r); err != nil {
		return err
	}
	return m.deliver(r)
}

// handle takes a message. What it does itself is not counted.
func (m *ucpMessages) handle(a *ucp.ActiveMessage) {
	m.arrived++
	m.last = append(m.last[:0], a.Data...)
}

// prepare makes both ends ready for another message.
func (m *ucpMessages) prepare(r *ucpRig) error {
	m.arrived = 0
	return r.change()
}

func (m *ucpMessages) send(r *ucpRig) (err error) {
	r.req, err = r.ep.SendActive(amID, nil, r.buf, nil)
	return err
}

// sends are the steps that count the sender.
func (m *ucpMessages) sends(r *ucpRig) steps {
	return steps{
		before: func() error { return m.prepare(r) },
		op:     func() error { return m.send(r) },
		after:  func() error { return m.deliver(r) },
	}
}

// receives are the steps that count the receiver.
func (m *ucpMessages) receives(r *ucpRig) steps {
	return steps{
		before: func() error {
			if err := m.prepare(r); err != nil {
				return err
			}
			return m.send(r)
		},
		op:    func() error { return m.receive(r) },
		after: func() error { return m.deliver(r) },
	}
}

// receive is one progress of the far end, which must hand over the message.
func (m *ucpMessages) receive(r *ucpRig) error {
	r.peer.Progress()
	if m.arrived == 0 {
		return errVoid
	}
	return nil
}

// deliver progresses both ends until the message has come and all of it is over, and
// compares it.
func (m *ucpMessages) deliver(r *ucpRig) error {
	if err := r.finish(); err != nil {
		return err
	}
	for range polls {
		if r.worker.Progress()+r.peer.Progress() > 0 {
			continue
		}
		if m.arrived > 0 {
			break
		}
		runtime.Gosched()
	}
	switch {
	case m.arrived != 1:
		return fmt.Errorf("%d messages have come: %w", m.arrived, errStuck)
	case !bytes.Equal(m.last, r.buf):
		return errCorrupt
	}
	return nil
}
