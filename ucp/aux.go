package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// auxLane carries handshake messages. It is opened by the first one and closed
// when the handshake is over, so that its iface need not be polled. When its transport
// fails, the next best takes over.
type auxLane struct {
	l      *link
	ep     uct.EP // nil while closed
	am     uct.AMSender
	iface  *iface
	out    []*wireup.Msg
	pend   uct.PendingReq
	comp   uct.Completion // of the flush before closing
	queued bool
	state  auxState
	err    error   // the lane broke
	at     int     // in peer.aux
	failed []error // of the transports before that
}

// auxState is what became of the messages that were sent.
type auxState uint8

const (
	auxDirty    auxState = iota // some may not have arrived
	auxFlushing                 // comp will tell when all have
	auxClean                    // all have arrived
)

// idle reports that nothing is to be sent, and all that was sent has arrived.
func (a *auxLane) idle() bool { return a.ep == nil && len(a.out) == 0 }

// send queues a message; it leaves now or when there are resources. What is said
// again is dropped while something has not left yet.
func (a *auxLane) send(m *wireup.Msg, again bool) {
	if again && len(a.out) > 0 {
		return
	}
	a.out = append(a.out, m)
	a.state = auxDirty
	a.l.e.w.addChore(a.l.e)
	a.push()
}

// push sends what it can.
func (a *auxLane) push() {
	if a.queued || a.err != nil || len(a.out) == 0 {
		return
	}
	if a.ep == nil {
		if a.err = a.open(); a.err != nil {
			return
		}
	}
	for len(a.out) > 0 {
		err := a.sendOne(a.out[0])
		switch err {
		case nil:
			a.out = a.out[1:]
			continue
		case uct.ErrNoResource:
			if err = a.ep.AddPending(&a.pend); err == uct.ErrBusy {
				continue
			}
			a.queued = err == nil
		}
		if !a.queued {
			a.err = err
		}
		return
	}
	a.out = nil
}

func (a *auxLane) sendOne(m *wireup.Msg) error {
	p := &a.l.e.w.msg
	p.b = m.Append(p.b[:0])
	if limit := a.iface.attr.AM.MaxBcopy; len(p.b) > limit {
		return fmt.Errorf("handshake message of %d bytes, %d fit: %w", len(p.b), limit, ucs.ErrTooLong)
	}
	_, err := a.am.AMBcopy(amWireup, p)
	return err
}

func (a *auxLane) open() error {
	if a.at >= len(a.l.e.peer.aux) {
		return fmt.Errorf("no transport can carry the handshake: %w", ucs.ErrUnreachable)
	}
	best := a.l.e.peer.aux[a.at]
	remote := &a.l.e.peer.addr.Resources[best.remote]
	i := a.l.e.w.ifaces[best.local]
	ep, err := i.NewEP(uct.EPParams{DeviceAddr: remote.DeviceAddr, IfaceAddr: remote.IfaceAddr})
	if err != nil {
		return err
	}
	am, ok := ep.(uct.AMSender)
	if !ok {
		return fmt.Errorf("%s claims active messages and has none: %w", i.attr.Resource.Transport, ucs.ErrInternal)
	}
	a.ep, a.am, a.iface = ep, am, i
	a.comp.Func = func(*uct.Completion) { a.flushed() }
	a.pend.Func = func(*uct.PendingReq) error { return a.resume() }
	i.retain()
	i.w.byLane[ep] = a.l.e
	return nil
}

// resume goes on when the lane has resources.
func (a *auxLane) resume() error {
	for len(a.out) > 0 {
		if err := a.sendOne(a.out[0]); err != nil {
			if err != uct.ErrNoResource {
				a.queued, a.err = false, err
			}
			return err
		}
		a.out = a.out[1:]
	}
	a.queued, a.out = false, nil
	a.l.e.w.addChore(a.l.e)
	return nil
}

// posted reports that every message is on its way.
func (a *auxLane) posted() bool { return len(a.out) == 0 }

// settleDown closes the lane once the handshake is over and the peer has
// everything. done says that nothing is left to do for now.
func (a *auxLane) settleDown() (done bool) {
	if a.ep == nil || !a.posted() || a.state == auxFlushing || !a.l.conn.Quiet() && !a.l.conn.Over() {
		return true
	}
	if a.state == auxDirty {
		a.comp.Count, a.comp.Status = 1, ucs.StatusOK
		switch pending, err := a.ep.Flush(&a.comp); {
		case err == uct.ErrNoResource:
			return false
		case pending:
			a.state = auxFlushing
			return true
		}
	}
	a.close()
	return true
}

// flushed runs when everything sent before the flush has arrived.
func (a *auxLane) flushed() {
	if a.state == auxFlushing {
		a.state = auxClean
	}
	a.l.e.w.addChore(a.l.e)
}

// takeOver goes on with the next best transport after one has failed. What was not
// sent yet goes that way; what was sent is the connection's to repeat. It reports false
// if there is none, and if the reason is that the peer is gone: no transport helps then.
func (a *auxLane) takeOver(err error) bool {
	a.failed = append(a.failed, err)
	if errors.Is(err, ucs.ErrConnReset) || a.at+1 >= len(a.l.e.peer.aux) {
		return false
	}
	a.at++
	a.shut()
	a.err = nil
	return true
}

func (a *auxLane) close() {
	a.out, a.err, a.at, a.failed = nil, nil, 0, nil
	a.shut()
}

// shut closes the transport endpoint.
func (a *auxLane) shut() {
	a.state = auxDirty
	if a.ep == nil {
		return
	}
	ep, i := a.ep, a.iface
	a.ep, a.am, a.iface = nil, nil, nil
	if a.queued {
		ep.PurgePending(func(*uct.PendingReq) {})
		a.queued = false
	}
	delete(i.w.byLane, ep)
	i.w.keep(ep.Close())
	i.release()
}

// packedMsg is a message on its way into a transport buffer.
type packedMsg struct{ b []byte }

// Pack copies the message.
func (p *packedMsg) Pack(dst []byte) int { return copy(dst, p.b) }
