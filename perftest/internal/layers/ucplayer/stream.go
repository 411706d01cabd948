package ucplayer

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
)

// stream sends messages in one direction. At most window of them are on their way
// unacknowledged.
type stream struct {
	*mail
	window uint64
	sync   note
	ack    word         // what the target has told
	own    *layer.Inbox // of a loopback: where the messages arrive
}

func newStream(o *op, s layer.Spec) layer.Op {
	st := &stream{mail: newMail(o, s, idData), window: uint64(s.Window), sync: note{op: o, id: idSync}}
	if o.cfg.Loopback {
		st.own = newInbox(s)
		o.take(idData, st.own)
		return st
	}
	o.worker.OnActive(idAck, st.ack.handle)
	return st
}

// delivered is how many messages have arrived, as far as this side knows.
func (st *stream) delivered() uint64 {
	if st.own != nil {
		return st.own.Count
	}
	return st.ack.value
}

// Post implements layer.Op.
func (st *stream) Post() error {
	for st.sent-st.delivered() >= st.window {
		if err := st.Poll(); err != nil {
			return err
		}
	}
	return st.push()
}

// Flush asks for an acknowledgement and waits until all messages have arrived.
func (st *stream) Flush() error {
	if st.own == nil {
		if err := st.ask(); err != nil {
			return err
		}
	}
	for st.delivered() != st.sent {
		if err := st.Poll(); err != nil {
			return err
		}
	}
	if err := st.finish(); err != nil {
		return err
	}
	if st.own != nil {
		return st.own.Err
	}
	return st.ack.err
}

func (st *stream) ask() error {
	for {
		sent, err := st.sync.send(st.sent)
		if sent || err != nil {
			return err
		}
		if err := st.Poll(); err != nil {
			return err
		}
	}
}

// sink is the target of a stream.
type sink struct {
	*op
	in    *layer.Inbox
	sync  word
	ack   note
	acked uint64 // messages
	every uint64 // messages between two acknowledgements
}

// newSink acknowledges twice in a window, so that a sender that is as fast as the target
// never waits.
func newSink(o *op, s layer.Spec) layer.Part {
	k := &sink{op: o, in: newInbox(s), ack: note{op: o, id: idAck}, every: uint64(max(s.Window/2, 1))}
	o.take(idData, k.in)
	o.worker.OnActive(idSync, k.sync.handle)
	return k
}

// Progress implements layer.Part.
func (k *sink) Progress() (int, error) {
	n := k.worker.Progress()
	if k.in.Count-k.acked >= k.every || k.sync.value > k.acked && k.in.Count >= k.sync.value {
		return n, k.acknowledge()
	}
	if n == 0 && k.failed != nil {
		return 0, k.failed
	}
	return n, nil
}

// acknowledge tells the count; while the last note is under way, later.
func (k *sink) acknowledge() error {
	sent, err := k.ack.send(k.in.Count)
	if sent {
		k.acked = k.in.Count
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
