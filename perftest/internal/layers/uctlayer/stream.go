package uctlayer

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct"
)

// stream sends messages in one direction, with at most window of them unacknowledged: -W of
// ucx_perftest.
type stream struct {
	*sender
	window uint64
	sync   *note
	ack    *word  // number that the target has acknowledged
	own    *inbox // of a loopback: receives the messages
}

func newStream(o *op, s layer.Spec) (layer.Op, error) {
	m, err := newSender(o, s, idData)
	if err != nil {
		return nil, err
	}
	st := &stream{sender: m, window: uint64(s.Window), sync: newNote(o, idSync), ack: &word{}}
	if o.cfg.Loopback {
		st.own = newInbox(s)
		return st, o.iface.SetAMHandler(idData, st.own)
	}
	return st, o.iface.SetAMHandler(idAck, st.ack)
}

// delivered returns the number of messages that the peer has acknowledged; in a loopback, the
// number of received ones.
func (st *stream) delivered() uint64 {
	if st.own != nil {
		return st.own.Count
	}
	return st.ack.value
}

// Post implements layer.Op.
func (st *stream) Post() error {
	for st.sent-st.delivered() >= st.window {
		if err := st.progress(); err != nil {
			return err
		}
	}
	return st.push()
}

// Flush requests an acknowledgement and waits until all messages have arrived.
func (st *stream) Flush() error {
	if st.own == nil {
		if err := st.requestAck(); err != nil {
			return err
		}
	}
	for st.delivered() != st.sent || st.comp.Count != 0 {
		if err := st.progress(); err != nil {
			return err
		}
	}
	return st.fault()
}

func (st *stream) requestAck() error {
	for {
		err := st.sync.send(st.sent)
		if err != uct.ErrNoResource {
			return err
		}
		if err := st.progress(); err != nil {
			return err
		}
	}
}

func (st *stream) fault() error {
	switch {
	case st.own != nil:
		return st.own.Err
	case st.ack.err != nil:
		return st.ack.err
	}
	return st.comp.Status.Err()
}

// sink is the target of a stream.
type sink struct {
	*op
	in    *inbox
	sync  *word
	ack   *note
	acked uint64 // messages
	syncs uint64 // acknowledged
	every uint64 // messages between two acknowledgements
}

// newSink returns a sink that acknowledges twice in a window, so that a sender as fast as the
// target never waits.
func newSink(o *op, s layer.Spec) (layer.Part, error) {
	k := &sink{op: o, in: newInbox(s), sync: &word{}, ack: newNote(o, idAck), every: uint64(max(s.Window/2, 1))}
	if k.ack.am == nil {
		return nil, noMessages(o, s)
	}
	if err := o.iface.SetAMHandler(idData, k.in); err != nil {
		return nil, err
	}
	return k, o.iface.SetAMHandler(idSync, k.sync)
}

func noMessages(o *op, s layer.Spec) error {
	return &layer.LimitError{Transport: o.res.Transport, Spec: s, Limit: "the transport has no such operation"}
}

// Progress implements layer.Part.
func (k *sink) Progress() (int, error) {
	n := k.iface.Progress()
	if k.in.Count-k.acked >= k.every || k.sync.count != k.syncs {
		return n, k.acknowledge()
	}
	if n == 0 && k.failed != nil {
		return 0, k.failed
	}
	return n, nil
}

// acknowledge sends the number of received messages; without room, it tries again later.
func (k *sink) acknowledge() error {
	err := k.ack.send(k.in.Count)
	switch err {
	case nil:
		k.acked, k.syncs = k.in.Count, k.sync.count
	case uct.ErrNoResource:
		return nil
	}
	return err
}

// Finish implements layer.Part.
func (k *sink) Finish() (uint64, error) {
	if k.in.Err == nil && k.sync.err != nil {
		return k.in.Count, fmt.Errorf("synchronising: %w", k.sync.err)
	}
	return k.in.Count, k.in.Err
}
