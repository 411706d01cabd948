package instr

import (
	"bytes"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/ucp"
)

// ucpMessages are the active messages of a ucpRig, from the near side to the far side.
type ucpMessages struct {
	arrived int    // number of the repetition
	last    []byte // number of the last received message
}

// open installs the handler on the far side, and sends a first message, which prepares both sides
// for more.
func (m *ucpMessages) open(r *ucpRig) error {
	m.last = make([]byte, 0, maxSize)
	r.peer.OnActive(amID, m.handle)
	if err := m.send(r); err != nil {
		return err
	}
	return m.deliver(r)
}

// handle receives a message. Its instructions are not counted.
func (m *ucpMessages) handle(a *ucp.ActiveMessage) {
	m.arrived++
	m.last = append(m.last[:0], a.Data...)
}

// prepare prepares both sides for another message.
func (m *ucpMessages) prepare(r *ucpRig) error {
	m.arrived = 0
	return r.change()
}

func (m *ucpMessages) send(r *ucpRig) (err error) {
	r.req, err = r.ep.SendActive(amID, nil, r.buf, nil)
	return err
}

// sends returns the steps that count the sender.
func (m *ucpMessages) sends(r *ucpRig) steps {
	return steps{
		before: func() error { return m.prepare(r) },
		op:     func() error { return m.send(r) },
		after:  func() error { return m.deliver(r) },
	}
}

// receives returns the steps that count the receiver.
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

// receive is one progress of the far side, which must deliver the message.
func (m *ucpMessages) receive(r *ucpRig) error {
	r.peer.Progress()
	if m.arrived == 0 {
		return errVoid
	}
	return nil
}

// deliver progresses both sides until the message is delivered and its send is complete, and
// compares the data.
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
