package ucxpeer

import (
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
)

// A rendezvous never contains a memory address: the sender sends an RTS, the receiver requests the data with an RTR
// without an address, and the sender sends fragments. An ATS instead of the RTR completes it without data.

// postTagRTS sends the RTS of a tagged message.
func postTagRTS(r *Request) error {
	return r.postRTS(ucxwire.RTS{Header: r.arg, Opcode: ucxwire.RTSOpcodeTag})
}

func (r *Request) postRTS(m ucxwire.RTS) error {
	m.EP, m.Req, m.Size = r.ep.remote, r.wireID(), uint64(r.buf.Len())
	p := r.ep.packet()
	p.long = ucxwire.AppendRTS(nil, &m)
	if err := r.ep.send(ucxwire.IDRTS); err != nil {
		return err
	}
	r.waits = true
	return nil
}

// isRndv reports whether the request is a send by rendezvous that waits for the peer.
func (r *Request) isRndv() bool { return (r.op == &opTagRndv || r.op == &opActiveRndv) && r.waits }

// handleRTR sends the data of a rendezvous: all data in one sequence of fragments, because the peer requests it only
// once.
func (w *Worker) handleRTR(a arrival) bool {
	m, ok := ucxwire.DecodeRTR(a.data)
	if !ok || m.Receiver == 0 || m.Offset != 0 {
		return false
	}
	r := w.requestOf(a, m.Sender)
	if r == nil || !r.isRndv() {
		return w.countLate()
	}
	if m.Size > uint64(r.buf.Len()) {
		r.ep.failForViolation(ucs.StatusRemoteInvalid, "a request for more bytes than the message has")
		return true
	}
	r.waits, r.posted, r.remote.peerReq = false, false, m.Receiver
	r.ep.control = append(r.ep.control, control{send: r})
	r.ep.sendQueued()
	return true
}

func (e *EP) postRndvData(r *Request) error {
	if r.status != ucs.StatusInProgress {
		return nil
	}
	return r.postPieces(ucxwire.IDRndvData, r.remote.peerReq)
}

// handleATS completes a send by rendezvous: the receiver needs no data.
func (w *Worker) handleATS(a arrival) bool {
	m, ok := ucxwire.DecodeReply(a.data)
	if !ok {
		return false
	}
	r := w.requestOf(a, m.Req)
	if r == nil || !r.isRndv() {
		return w.countLate()
	}
	r.waits = false
	r.end(m.Status.Local(), nil)
	return true
}

// handleRTS handles the RTS of a tagged or active message.
func (w *Worker) handleRTS(a arrival) bool {
	m, ok := ucxwire.DecodeRTS(a.data)
	if !ok || m.Req == 0 || m.Size > maxMessage {
		return false
	}
	e := w.epOf(a, m.EP)
	if e == nil {
		return w.countLate()
	}
	switch m.Opcode {
	case ucxwire.RTSOpcodeTag:
		return w.arrive(a, &message{total: int(m.Size), ep: e, req: m.Req, rndv: true}, m.Header, nil)
	case ucxwire.RTSOpcodeAM:
		w.activeRTS(e, &m)
		return true
	}
	return false
}

// handleRndvData stores a fragment of a rendezvous.
func (w *Worker) handleRndvData(a arrival) bool {
	f, ok := ucxwire.DecodeFragment(a.data)
	if !ok {
		return false
	}
	r := w.requestOf(a, f.Name)
	if r == nil || r.msg == nil || !r.msg.rndv {
		return w.countLate()
	}
	m := r.msg
	if f.Offset != uint64(m.got) || len(f.Data) == 0 || len(f.Data) > m.total-m.got {
		m.ep.failForViolation(ucs.StatusRemoteInvalid, "an unexpected fragment of a rendezvous")
		return true
	}
	if m.write(f.Data); r.status != ucs.StatusInProgress {
		delete(w.rndv, m)
	}
	return true
}
