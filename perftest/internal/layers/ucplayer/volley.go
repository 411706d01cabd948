package ucplayer

import "github.com/gucx/gucx/perftest/internal/layers/layer"

// volley is the initiator of a ping-pong of messages. A loopback gets its own messages
// back, which is the round trip then, as in ucx_perftest.
type volley struct {
	*mail
	in *layer.Inbox
}

func newVolley(o *op, s layer.Spec) layer.Op {
	id := uint16(idData)
	if o.cfg.Loopback {
		id = idEcho
	}
	v := &volley{mail: newMail(o, s, id), in: newInbox(s)}
	o.take(idEcho, v.in)
	return v
}

// Post implements layer.Op.
func (v *volley) Post() error { return v.push() }

// Flush waits for the answer.
func (v *volley) Flush() error {
	for v.in.Count != v.sent {
		if err := v.Poll(); err != nil {
			return err
		}
	}
	return v.in.Err
}

// echo is the target of a ping-pong.
type echo struct {
	*mail
	in *layer.Inbox
}

func newEcho(o *op, s layer.Spec) layer.Part {
	e := &echo{mail: newMail(o, s, idEcho), in: newInbox(s)}
	o.take(idData, e.in)
	return e
}

// Progress implements layer.Part.
func (e *echo) Progress() (int, error) {
	n := e.worker.Progress()
	for e.sent != e.in.Count {
		if sent, err := e.try(); !sent || err != nil {
			return n, err
		}
	}
	if n == 0 && e.failed != nil {
		return 0, e.failed
	}
	return n, nil
}

// Finish implements layer.Part.
func (e *echo) Finish() (uint64, error) { return e.in.Count, e.in.Err }
