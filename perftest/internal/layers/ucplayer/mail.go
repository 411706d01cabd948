package ucplayer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// Active messages of the layer.
const (
	idData = iota + 1 // numbered messages
	idNote
)

// mail is layer.Mail by active messages from the local buffer. While one of them is under
// way the buffer is in use, and those that follow have its number.
type mail struct {
	*op
	in    *layer.Inbox
	note  *layer.Note
	sends requests
	recvs requests // of what the peer has announced, into Memory
	into  ucp.OpParams
	wrong error // of a receive

	told    [layer.NoteLen]byte
	telling *ucp.Request // of the latest note, while it is under way
	heard   [layer.NoteLen]byte
	hearing *ucp.Request // of a note that the peer has announced
}

// newMail sends messages of s, of which at most a window is under way. What the peer sends
// goes to in and note.
func newMail(o *op, s layer.Spec, in *layer.Inbox, note *layer.Note) *mail {
	m := &mail{op: o, in: in, note: note, sends: newRequests(s.Window), recvs: newRequests(s.Window), into: ucp.OpParams{Mem: o.memory}}
	o.worker.OnActive(idData, m.take)
	o.worker.OnActive(idNote, m.heed)
	return m
}

// take takes a message, or fetches it. Those that have been fetched come first: their
// sender may have gone on to the next number.
func (m *mail) take(a *ucp.ActiveMessage) {
	if m.fetching() {
		m.fetched()
	}
	if a.Length == len(a.Data) {
		m.in.Take(a.Data)
		return
	}
	if m.recvs.full() || a.Length > len(m.buf) {
		m.wrong = fmt.Errorf("%w: a message of %d bytes that is too many or too long", layer.ErrData, a.Length)
		return
	}
	r, err := a.Recv(m.memory.Bytes()[:a.Length], &m.into)
	switch {
	case err != nil:
		m.wrong = err
	case r != nil:
		m.recvs.add(r)
	default:
		m.in.Take(m.memory.Bytes()[:a.Length])
	}
}

// heed takes a note. The peer announces even that while it has no credit.
func (m *mail) heed(a *ucp.ActiveMessage) {
	if a.Length == len(a.Data) {
		m.note.Take(a.Data)
		return
	}
	r, err := a.Recv(m.heard[:], nil)
	switch {
	case err != nil || m.hearing != nil:
		m.wrong = errors.Join(err, fmt.Errorf("%w: a note that did not come whole", layer.ErrData))
	case r != nil:
		m.hearing = r
	default:
		m.note.Take(m.heard[:])
	}
}

// Send implements layer.Mail.
func (m *mail) Send(number uint64) (bool, error) {
	if !m.sends.empty() {
		if m.reap(); m.sends.full() {
			return false, nil
		}
	}
	if m.sends.empty() {
		layer.PutNumber(m.buf, number)
	}
	r, err := m.ep.SendActive(idData, nil, m.buf, &m.params)
	if r != nil {
		m.sends.add(r)
	}
	return err == nil, err
}

// reap lets go of the oldest messages that have ended. How they ended the EP tells.
func (m *mail) reap() {
	for m.sends.ended() {
	}
}

// fetched takes the messages that were fetched, and the note.
func (m *mail) fetched() {
	for m.recvs.ended() {
		m.in.Take(m.memory.Bytes()[:len(m.buf)])
	}
	if m.hearing != nil && m.hearing.Done() {
		m.hearing.Release()
		m.hearing = nil
		m.note.Take(m.heard[:])
	}
}

// fetching reports that something is being fetched.
func (m *mail) fetching() bool { return m.hearing != nil || !m.recvs.empty() }

// Poll implements layer.Mail.
func (m *mail) Poll() error {
	if err := m.op.Poll(); err != nil || m.wrong != nil {
		return errors.Join(err, m.wrong)
	}
	if m.fetching() {
		m.fetched()
	}
	return nil
}

// Finish implements layer.Mail.
func (m *mail) Finish() error {
	for {
		if m.reap(); m.sends.empty() {
			return nil
		}
		if err := m.Poll(); err != nil {
			return err
		}
	}
}

// Tell implements layer.Mail: there is room once the latest note has ended.
func (m *mail) Tell(v uint64) (_ bool, err error) {
	if m.telling != nil {
		if !m.telling.Done() {
			return false, nil
		}
		m.telling.Release()
	}
	binary.LittleEndian.PutUint64(m.told[:], v)
	m.telling, err = m.ep.SendActive(idNote, nil, m.told[:], nil)
	return err == nil, err
}

// Progress implements layer.Mail.
func (m *mail) Progress() (int, error) {
	n := m.worker.Progress()
	if m.fetching() {
		m.fetched()
	}
	if n == 0 && m.failed != nil {
		return 0, m.failed
	}
	return n, m.wrong
}
