package ucplayer

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// Limits of the number of posted receives.
const (
	// slotsLen is the length of the memory of all receives, in bytes: many times what a peer may
	// send without request.
	slotsLen = 8 << 20
	// cachedLen is the length of that memory if there are more than a few receives: it should fit
	// into the caches. Receives of 64 KiB over sm took 1.3 us with 1 MiB, and 1.4 to 2.4 us with 8
	// MiB.
	cachedLen = 1 << 20
	// fewSlots is the minimum number of receives of any length, while there is memory: with one
	// receive of 1 MiB, tcp had 5/6 of the bandwidth that it has with four.
	fewSlots = 4
	// spareLen is the maximum length, in bytes, for which a ping-pong has a second receive, so that
	// the reply is sent before the next receive is posted, as in ucx_perftest. For larger messages
	// the post takes little of the time, and a second buffer occupies caches.
	spareLen = 4 << 10
)

// slotsOf returns the number of receives of size bytes that are posted at a time, for a window.
func slotsOf(size, window int) int {
	if size <= spareLen {
		window = max(window, 2)
	}
	return min(window, max(cachedLen/max(size, 1), min(fewSlots, slotsLen/max(size, 1)), 1))
}

// posted is a layer.Messenger with posted receives, each with a buffer of its own: one for each
// message of the window, while there is memory.
type posted struct {
	exchange
	recvs  requests
	into   *ucp.OpParams
	recv   func(*slot) (*ucp.Request, error) // nil if a tag is received into one buffer
	want   uint64                            // the tag, and
	mask   uint64                            // mask of its bits
	ready  func() bool                       // probes for a message; nil to post before it arrives
	enough int                               // number of posted receives with which a reply is sent before more are posted
	n      int                               // lengths of receives of a stream, which are known and ignored
}

func newPosted(o op, s layer.Spec, in *layer.Inbox, note *layer.Note) (*posted, error) {
	slots, err := o.slotted()
	if err != nil {
		return nil, err
	}
	most := slotsOf(s.Size, s.Window)
	p := &posted{recvs: newRequests(most), into: slots.params(), enough: (most + 1) / 2}
	p.init(o, s, in, note)
	for i := range p.recvs.slots {
		p.recvs.slots[i].buf = slots.bytes[i*s.Size:][:s.Size]
	}
	if s.Kind.Streamed() {
		err = p.streamed()
	} else {
		p.tagged(s)
	}
	if err != nil {
		return nil, err
	}
	p.over = p.cancel
	_, err = p.fill()
	return p, err
}

// streamed makes p send and receive the bytes of a stream.
func (p *posted) streamed() error {
	from := p.ep
	if p.cfg.Loopback {
		var err error
		if from, err = p.farEP(); err != nil {
			return err
		}
	}
	p.post = func() (*ucp.Request, error) { return p.ep.StreamSend(p.buf, p.params) }
	p.recv = func(at *slot) (*ucp.Request, error) { return from.StreamRecv(at.buf, true, &p.n, p.into) }
	return nil
}

// farEP returns the other side of a loopback's EP, which receives what the EP sends.
func (p *posted) farEP() (far *ucp.EP, err error) {
	p.worker.OnActive(idData, func(m *ucp.ActiveMessage) { far = m.From })
	r, err := p.ep.SendActive(idData, nil, nil, nil)
	if r != nil {
		r.Release()
	}
	for err == nil && far == nil {
		err = p.op.Poll()
	}
	return far, err
}

// tag is the tag of all messages.
const tag = 0x6775637874616721

// tagged makes p send and receive tagged messages.
func (p *posted) tagged(s layer.Spec) {
	mask, want := ^uint64(0), uint64(tag)
	if s.Wildcard {
		mask, want = 0, 0
	}
	p.post = p.tagSend(s)
	p.want, p.mask = want, mask
	if s.Layouts.Recv != layer.Contig {
		p.tagRecvForms(s.Layouts.Recv)
	}
	if s.Unexpected {
		p.enough = len(p.recvs.slots) + 1
		p.ready = func() bool {
			_, _, ok := p.worker.TagProbe(want, mask, false)
			return ok
		}
	}
}

// tagSend sends the buffer in the layout of the sender. For a message in one buffer the parameters
// are variables of the function: looking them up for each message would be part of the measured
// time.
func (p *posted) tagSend(s layer.Spec) func() (*ucp.Request, error) {
	ep, buf, params, sync := p.ep, p.buf, p.params, s.Kind == layer.TagSyncPing
	switch {
	case s.Layouts.Send != layer.Contig:
		f, send := newForm(s.Layouts.Send, buf), ep.TagSendData
		if sync {
			send = ep.TagSendSyncData
		}
		return func() (*ucp.Request, error) { return send(tag, f.outgoing(), params) }
	case sync:
		return func() (*ucp.Request, error) { return ep.TagSendSync(tag, buf, params) }
	}
	return func() (*ucp.Request, error) { return ep.TagSend(tag, buf, params) }
}

// tagRecvForms makes p receive into slots in a layout.
func (p *posted) tagRecvForms(l layer.Layout) {
	for i := range p.recvs.slots {
		at := &p.recvs.slots[i]
		at.form = newForm(l, at.buf)
	}
	p.recv = func(at *slot) (*ucp.Request, error) {
		return p.worker.TagRecvData(at.form.incoming(), p.want, p.mask, nil, p.into)
	}
}

// fill posts receives while there are buffers, and returns the number of messages that it has received at once.
func (p *posted) fill() (received int, err error) {
	for !p.recvs.full() && (p.ready == nil || p.ready()) {
		at := p.recvs.free
		var r *ucp.Request
		if p.recv == nil { // one call less, because the time of each message includes it
			r, err = p.worker.TagRecv(at.buf, p.want, p.mask, nil, p.into)
		} else {
			r, err = p.recv(at)
		}
		switch {
		case err != nil:
			return received, err
		case r == nil:
			p.in.Receive(at.buf)
			received++
		default:
			p.recvs.add(r)
		}
	}
	return received, nil
}

// cancel cancels the receives that have not matched.
func (p *posted) cancel() {
	for !p.recvs.empty() {
		p.recvs.first.req.Cancel()
		p.recvs.drop()
	}
}

// Progress implements layer.Messenger. While enough receives are posted, it posts more only if none has completed, so
// that a reply is sent first.
func (p *posted) Progress() (int, error) {
	n := p.worker.Progress()
	if err := p.after(n); err != nil {
		return n, err
	}
	if p.recvs.full() && !p.recvs.first.req.Done() {
		return n, nil
	}
	if p.recvs.receive(p.in) && p.recvs.count >= p.enough {
		return n, nil
	}
	received, err := p.fill()
	return n + received, err
}
