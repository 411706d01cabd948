package ucprpc

import (
	"context"
	"errors"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// amID is the id of all active messages of this package.
const amID = 0x7270

// Peer is a connection to another process. Its methods may be called by any goroutine. A handler that runs inline may
// call Start and Identity only.
type Peer struct {
	l    *loop
	ep   *ucp.EP
	from ucp.Identity

	usable       context.Context // ends when the connection has failed or the peer shuts down: clients use the next connection
	markUnusable context.CancelCauseFunc

	// Used by the driver only.
	gone     error   // the reason why the connection has failed; nil until then
	draining bool    // the peer accepts no more requests
	running  []*Call // calls of the peer without a reply, in no order
	bytes    int64   // bytes of these calls
	unsent   int     // messages of notify that are not sent
}

// Identity returns the identity of the peer, as [ucp.EP.PeerIdentity].
func (p *Peer) Identity() ucp.Identity { return p.from }

// Call is [Client.Call] over this connection only.
func (p *Peer) Call(ctx context.Context, m Method, request, buf []byte) (reply []byte, err error) {
	return p.execute(ctx, operation{op: opCall, method: m, data: request, buf: buf})
}

// Send is [Client.Send] over this connection only.
func (p *Peer) Send(ctx context.Context, m Method, data []byte) error {
	_, err := p.execute(ctx, operation{op: opOneWay, method: m, data: data})
	return err
}

// Start begins a call and returns. When the reply has arrived or the connection has failed, the goroutine that makes
// progress calls done, with the results of Call; for done the rules of inline handlers apply: see HandlerConfig. The
// program must not modify request or use buf before that. Start is for handlers that run inline, and for done itself.
//
// If Start returns an error, CodeBusy or CodeTooLong, it does not call done. Otherwise done is called once, and never
// before Start has returned to a handler that runs inline on the worker of p. If the handler runs on another worker, of
// this server or of a client, done may run at the same time as the handler.
func (p *Peer) Start(m Method, request, buf []byte, done func(reply []byte, err error)) error {
	return p.startOperation(operation{op: opCall, method: m, data: request, buf: buf, onReply: done})
}

// addPeer returns the record of a connection, which it adds if there is none.
func (l *loop) addPeer(ep *ucp.EP) *Peer {
	p := l.peers[ep]
	if p == nil {
		p = &Peer{l: l, ep: ep, from: ep.PeerIdentity()}
		p.usable, p.markUnusable = context.WithCancelCause(context.Background())
		l.peers[ep] = p
		l.connected.Add(1)
	}
	return p
}

// dropPeer fails all operations with a peer, with err as the reason. The caller closes the EP.
func (l *loop) dropPeer(p *Peer, err error) {
	if p.gone != nil {
		return
	}
	p.gone = err
	delete(l.peers, p.ep)
	l.connected.Add(-1)
	p.markUnusable(err) // first, because callers that are woken below use the next connection
	if l.n.onGone != nil {
		l.n.onGone(p, err)
	}
	for _, c := range p.running {
		c.cancel(&Error{Code: CodeLost, Err: err})
	}
	for _, s := range l.slots {
		if s.active && s.p == p {
			s.setResult(&Error{Code: CodeLost, Err: err})
		}
	}
	l.checkQuiet()
}

// dropPeerLater drops the peer of an EP that has failed, soon: outside of calls of ucp, so that no operation completes while ucp posts
// it.
func (l *loop) dropPeerLater(ep *ucp.EP, err error) {
	l.submit(func() {
		if p := l.peers[ep]; p != nil {
			l.dropPeer(p, err)
		}
	})
}

// errDraining is the reason for which a client leaves a connection to a server that shuts down.
var errDraining = &Error{Code: CodeDraining}

// markDraining makes this side send no more requests to a peer that shuts down.
func (p *Peer) markDraining() {
	p.draining = true
	p.markUnusable(errDraining)
}

// errViolation is the reason for which a peer that violates the protocol is disconnected.
var errViolation = errors.New("the peer violates the protocol of ucprpc")

// violate disconnects a peer that has sent an invalid message.
func (p *Peer) violate(m *ucp.ActiveMessage) {
	m.Reject()
	p.l.stats[violations].Inc()
	p.disconnect(errViolation)
}

func (p *Peer) disconnect(err error) {
	p.l.dropPeer(p, err)
	r, _ := p.ep.Close(ucp.CloseForce) // an error means that the EP is closed already
	r.Release()
}

// notify sends a message that only has a header.
func (p *Peer) notify(h *header) {
	b := make([]byte, headerLen)
	h.pack(b, "")
	p.unsent++
	sent := func(error) { p.unsent-- } // an error means that the peer is gone
	r, err := p.ep.SendActive(amID, b, nil, &ucp.OpParams{OnDone: sent})
	r.Release()
	if r == nil {
		sent(err)
	}
}

// handle handles any message of a peer. It runs inside Progress.
func (l *loop) handle(m *ucp.ActiveMessage) {
	p := l.peers[m.From]
	if p == nil && l.connects {
		p = l.addPeer(m.From)
	}
	if p == nil {
		m.Reject()
		return
	}
	var h header
	name, ok := h.unpack(m.Header)
	switch {
	case !ok:
		p.violate(m)
	case h.kind == kindReply:
		l.handleReply(p, &h, m)
	case h.kind == kindCancel:
		p.cancel(h.id)
	case h.kind == kindDrain:
		p.markDraining()
	default:
		l.handleRequest(p, &h, name, m)
	}
}

// cancel cancels the context of a call of the peer, if the call is still in progress.
func (p *Peer) cancel(id callID) {
	for _, c := range p.running {
		if c.h.id == id {
			c.cancel(context.Canceled)
			return
		}
	}
}

// disconnected is the error of a connection that this side closes.
var disconnected = &Error{Code: CodeClosed, Err: ucs.ErrClosed}
