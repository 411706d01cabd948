package instr

import (
	"bytes"
	"runtime"

	"github.com/gucx/gucx/ucp"
)

// tagMessages are the tagged messages of a ucpRig, from the near side to the far side.
type tagMessages struct {
	recv *ucp.Request // receive of the far side; nil when it is complete
	into []byte
	// with contains the parameters of both sides; nil unless the message uses rendezvous.
	with, intoWith *ucp.OpParams
}

// aTag is the tag of all messages, and also the mask of a receive that accepts no other.
const (
	aTag    = 0x1122334455667788
	exactly = ^uint64(0)
)

// steps returns the steps for one message. A probe waits for an unexpected message.
func (t *tagMessages) steps(r *ucpRig, op Op) steps {
	t.into = r.far.Memory()[:len(r.buf)]
	t.with, t.intoWith = nil, nil
	if op >= Rndv {
		mem, _ := r.far.Mems()
		t.with, t.intoWith = &r.params, &ucp.OpParams{Mem: mem}
	}
	send := func() error { return t.send(r) }
	post := func() error { return t.post(r) }
	fill := func() error { return t.fill(r) }
	after := func() error { return t.deliver(r) }
	switch op {
	case Tag, Rndv:
		return steps{before: inTurn(r.change, post), op: send, after: after}
	case TagPost:
		return steps{before: r.change, op: post, after: inTurn(send, after)}
	case TagRecv, RndvRecv:
		return steps{before: inTurn(r.change, post, send), op: fill, after: after}
	case RndvDone:
		got := func() error { return t.waitReceived(r) }
		return steps{before: inTurn(r.change, post, send, got), op: r.progressOnce, after: after}
	}
	return steps{before: inTurn(r.change, send, func() error { return t.waitUnexpected(r) }), op: post, after: after}
}

// inTurn runs each of fs, until the first error.
func inTurn(fs ...func() error) func() error {
	return func() error {
		for _, f := range fs {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
}

func (t *tagMessages) send(r *ucpRig) (err error) {
	r.req, err = r.ep.TagSend(aTag, r.buf, t.with)
	return err
}

func (t *tagMessages) post(r *ucpRig) (err error) {
	t.recv, err = r.peer.TagRecv(t.into, aTag, exactly, nil, t.intoWith)
	return err
}

// fill is one progress of the far side, which must complete the receive. It checks the byte that
// differs in each repetition: a call on the request would be counted.
func (t *tagMessages) fill(r *ucpRig) error {
	r.peer.Progress()
	if t.into[0] != r.buf[0] {
		return errVoid
	}
	return nil
}

// waitReceived waits for the completion of the receive, without progress of the sender.
func (t *tagMessages) waitReceived(r *ucpRig) error {
	for range polls {
		if t.recv.Done() {
			return nil
		}
		if r.peer.Progress() == 0 {
			runtime.Gosched()
		}
	}
	return errStuck
}

// waitUnexpected waits until the message is in the unexpected queue of the far side.
func (t *tagMessages) waitUnexpected(r *ucpRig) error {
	for range polls {
		if _, _, ok := r.peer.TagProbe(aTag, exactly, false); ok {
			return nil
		}
		if r.worker.Progress()+r.peer.Progress() == 0 {
			runtime.Gosched()
		}
	}
	return errStuck
}

// deliver waits for the delivery of the message, and compares the data.
func (t *tagMessages) deliver(r *ucpRig) error {
	if err := r.finish(); err != nil {
		return err
	}
	for range polls {
		if t.recv == nil || t.recv.Done() {
			return t.compare(r)
		}
		if r.worker.Progress()+r.peer.Progress() == 0 {
			runtime.Gosched()
		}
	}
	return errStuck
}

func (t *tagMessages) compare(r *ucpRig) error {
	if t.recv != nil {
		t.recv.Release()
		t.recv = nil
	}
	if err := r.idle(); err != nil {
		return err
	}
	if !bytes.Equal(r.buf, t.into) {
		return errCorrupt
	}
	return nil
}
