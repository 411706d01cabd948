package ucplayer

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// Active messages of the layer.
const (
	idData = iota + 1 // numbered messages
	idNote
)

// active is a layer.Messenger that sends active messages from the local buffer.
type active struct {
	exchange
	recvs requests // of messages received by RTS, into Memory
	into  *ucp.OpParams
}

func newActive(o op, s layer.Spec, in *layer.Inbox, note *layer.Note) *active {
	m := &active{recvs: newRequests(s.Window)}
	m.init(o, s, in, note)
	for i := range m.recvs.slots {
		m.recvs.slots[i].buf = m.memory.Bytes()[:s.Size]
	}
	if m.cfg.Memory != layer.Plain {
		m.into = &ucp.OpParams{Mem: m.memory}
	}
	ep, buf, params := m.ep, m.buf, m.params
	m.post = func() (*ucp.Request, error) { return ep.SendActive(idData, nil, buf, params) }
	if s.Layouts.Send != layer.Contig {
		f := newForm(s.Layouts.Send, buf)
		m.post = func() (*ucp.Request, error) { return ep.SendActiveData(idData, nil, f.outgoing(), params) }
	}
	m.worker.OnActive(idData, m.receive)
	return m
}

// receive receives a message, or fetches it if it arrived by RTS. It first takes the fetched messages:
// their sender may have continued with the next number.
func (m *active) receive(a *ucp.ActiveMessage) {
	if !m.recvs.empty() {
		m.recvs.receive(m.in)
	}
	if a.Length == len(a.Data) {
		m.in.Receive(a.Data)
		return
	}
	if m.recvs.full() || a.Length > len(m.buf) {
		m.failed = fmt.Errorf("%w: a message of %d bytes that is too many or too long", layer.ErrData, a.Length)
		return
	}
	at := m.recvs.free
	at.buf = at.buf[:a.Length]
	r, err := a.Recv(at.buf, m.into)
	switch {
	case err != nil:
		m.failed = err
	case r != nil:
		m.recvs.add(r)
	default:
		m.in.Receive(at.buf)
	}
}

// Progress implements layer.Messenger.
func (m *active) Progress() (int, error) {
	n := m.worker.Progress()
	if !m.recvs.empty() {
		m.recvs.receive(m.in)
	}
	return n, m.after(n)
}
