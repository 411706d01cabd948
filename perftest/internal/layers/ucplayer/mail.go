package ucplayer

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// Active messages of the layer.
const (
	idData = iota + 1 // numbered messages of the initiator
	idEcho            // the answers in a ping-pong, numbered too
	idSync            // asks for an idAck once so many idData have come
	idAck             // how many idData have come
)

// mail sends numbered messages from the local buffer. While one of them is under way the
// buffer is in use, and those that follow have its number.
type mail struct {
	*op
	post func() (*ucp.Request, error)
	sent uint64

	under []*ucp.Request // ring of messages that are under way
	first uint64         // the oldest of them,
	end   uint64         // and behind the latest: running indices
}

// maxMessage is the longest message in bytes: what the peer of a new connection takes
// without having asked for it.
const maxMessage = 8 << 10

// newMail sends messages of s, of which at most a window is under way.
func newMail(o *op, s layer.Spec, id uint16) *mail {
	m := &mail{op: o, under: make([]*ucp.Request, s.Window)}
	m.post = func() (*ucp.Request, error) { return m.ep.SendActive(id, nil, m.buf, &m.params) }
	return m
}

// try sends the next message if there is room for it.
func (m *mail) try() (sent bool, err error) {
	if m.first != m.end {
		if m.reap(); m.end-m.first == uint64(len(m.under)) {
			return false, nil
		}
	}
	if m.first == m.end {
		layer.PutNumber(m.buf, m.sent)
	}
	r, err := m.post()
	if err != nil {
		return false, err
	}
	if r != nil {
		m.under[m.end%uint64(len(m.under))] = r
		m.end++
	}
	m.sent++
	return true, nil
}

// reap lets go of the oldest messages that have ended. How they ended the EP tells.
func (m *mail) reap() {
	for m.first != m.end {
		r := m.under[m.first%uint64(len(m.under))]
		if !r.Done() {
			return
		}
		r.Release()
		m.first++
	}
}

// push sends the next message, and waits for room.
func (m *mail) push() error {
	for {
		sent, err := m.try()
		if sent || err != nil {
			return err
		}
		if err := m.Poll(); err != nil {
			return err
		}
	}
}

// finish waits until no message is under way.
func (m *mail) finish() error {
	for {
		if m.reap(); m.first == m.end {
			return nil
		}
		if err := m.Poll(); err != nil {
			return err
		}
	}
}

// noteLen is the length of a note in bytes.
const noteLen = 8

// note sends active messages of one word.
type note struct {
	*op
	id   uint16
	word [noteLen]byte
	req  *ucp.Request // of the latest, while it is under way
}

// send sends v, unless the latest note is still under way.
func (n *note) send(v uint64) (sent bool, err error) {
	if n.req != nil {
		if !n.req.Done() {
			return false, nil
		}
		n.req.Release()
		n.req = nil
	}
	binary.LittleEndian.PutUint64(n.word[:], v)
	n.req, err = n.ep.SendActive(n.id, nil, n.word[:], nil)
	return err == nil, err
}

// word receives notes and keeps the last.
type word struct {
	value uint64
	err   error
}

func (w *word) handle(m *ucp.ActiveMessage) {
	if len(m.Data) != noteLen {
		w.err = fmt.Errorf("%w: control message of %d bytes", layer.ErrData, len(m.Data))
		return
	}
	w.value = binary.LittleEndian.Uint64(m.Data)
}

// newInbox expects messages of s.
func newInbox(s layer.Spec) *layer.Inbox {
	in := layer.NewInbox(s)
	in.Repeats = true
	return &in
}

// take has the inbox take the active messages of an id.
func (c *conn) take(id uint16, in *layer.Inbox) {
	c.worker.OnActive(id, func(m *ucp.ActiveMessage) { in.Take(m.Data) })
}
