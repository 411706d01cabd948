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
	*exchange
	recvs requests // of messages received by RTS, into Memory
	into  ucp.OpParams
}

func newActive(o *op, s layer.Spec, in *layer.Inbox, note *layer.Note) *active {
	m := &active{exchange: newExchange(o, s, in, note), recvs: newRequests(s.Window)}
	if o.cfg.Memory != layer.Plain {
		m.into.Mem = o.memory
	}
	ep, buf, params := o.ep, o.buf, &o.params
	m.post = func() (*ucp.Request, error) { return ep.SendActive(idData, nil, buf, params) }
	if s.Layouts.Send != layer.Contig {
		f := newForm(s.Layouts.Send, m.buf)
		m.post = func() (*ucp.Request, error) { return m.ep.SendActiveData(idData, nil, f.outgoing(), &m.params) }
	}
	o.worker.OnActive(idData, m.receive)
	return m
}

// receive receives a message, or fetches it if it arrived by RTS. It first takes the fetched messages:
// their sender may have continued with the next number.
func (m *active) receive(a *ucp.ActiveMessage) {
	if !m.recvs.empty() {
		m.fetched()
	}
	if a.Length == len(a.Data) {
		m.in.Receive(a.Data)
		return
	}
	if m.recvs.full() || a.Length > len(m.buf) {
		m.recvErr = fmt.Errorf("%w: a message of %d bytes that is too many or too long", layer.ErrData, a.Length)
		return
	}
	r, err := a.Recv(m.memory.Bytes()[:a.Length], &m.into)
	switch {
	case err != nil:
		m.recvErr = err
	case r != nil:
		m.recvs.add(r)
	default:
		m.in.Receive(m.memory.Bytes()[:a.Length])
	}
}

// fetched takes the messages whose fetch is complete.
func (m *active) fetched() {
	for m.recvs.releaseOldest() {
		m.in.Receive(m.memory.Bytes()[:len(m.buf)])
	}
}

// Poll implements layer.Messenger.
func (m *active) Poll() error {
	err := m.exchange.Poll()
	if !m.recvs.empty() {
		m.fetched()
	}
	return err
}

// Progress implements layer.Messenger.
func (m *active) Progress() (int, error) {
	n, err := m.exchange.Progress()
	if !m.recvs.empty() {
		m.fetched()
	}
	return n, err
}
