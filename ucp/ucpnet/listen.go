package ucpnet

import (
	"context"
	"net"
	"os"
	"slices"

	"github.com/gucx/gucx/ucp"
)

// backlog limits the connections that wait for Accept; further ones are rejected. It is the kernel's
// default for sockets (net.core.somaxconn before Linux 5.4).
const backlog = 128

// Listener accepts connections. All methods may be called by any goroutine.
type Listener struct {
	w    *ucp.SharedWorker
	l    *ucp.Listener
	addr net.Addr
	open context.Context // ends with Close
	shut context.CancelCauseFunc

	// Protected by the worker's lock.
	waiting []*Conn           // connections that Accept has not returned
	conns   map[*ucp.EP]*Conn // connections with an open EP
}

var _ net.Listener = (*Listener)(nil)

// Listen returns a listener for connections to the worker. For network and address, for the processes that may connect,
// and for errors see [ucp.Worker.Listen].
func Listen(ctx context.Context, w *ucp.SharedWorker, network, address string) (*Listener, error) {
	return listen(w, func(w *ucp.Worker, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.Listen(ctx, network, address, cfg)
	})
}

// ListenOn is Listen on an open socket, for example one inherited from another process: see [ucp.Worker.ListenOn].
func ListenOn(w *ucp.SharedWorker, socket net.Listener) (*Listener, error) {
	return listen(w, func(w *ucp.Worker, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.ListenOn(socket, cfg)
	})
}

func listen(w *ucp.SharedWorker, open func(*ucp.Worker, ucp.ListenConfig) (*ucp.Listener, error)) (*Listener, error) {
	l := &Listener{w: w, conns: map[*ucp.EP]*Conn{}}
	l.open, l.shut = context.WithCancelCause(context.Background())
	var err error
	w.Do(func(w *ucp.Worker) {
		l.l, err = open(w, ucp.ListenConfig{
			Accept:     func(*ucp.ConnRequest) bool { return len(l.waiting) < backlog },
			OnPeer:     l.addPeer,
			OnPeerGone: l.peerGone,
		})
	})
	if err != nil {
		return nil, err
	}
	l.addr = l.l.Addr()
	return l, nil
}

// addPeer adds the connection of a peer.
func (l *Listener) addPeer(p *ucp.Peer) {
	local := l.addr
	if p.Local.IsValid() {
		local = net.TCPAddrFromAddrPort(p.Local)
	}
	c := newConn(l.w, p.EP, local, peerAddr(p.From))
	c.listener = l
	l.conns[p.EP] = c
	l.waiting = append(l.waiting, c)
}

// peerGone moves data that the peer sent before its EP failed to the connection.
func (l *Listener) peerGone(p *ucp.Peer, err error) {
	if c := l.conns[p.EP]; c != nil {
		delete(l.conns, p.EP)
		c.setGone(err)
	}
}

// Accept returns the next connection, a *Conn, as soon as the Dial of the peer can return without
// progress of this side. The error matches net.ErrClosed if the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	var c *Conn
	err := l.w.Until(l.open, func() bool { return l.next(&c) })
	if c != nil {
		return c, nil
	}
	if l.open.Err() != nil {
		err = net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: netError("accept", err)}
}

// next sets *c to the first waiting connection that Accept may return: the Dial of its peer needs no more progress of this
// side, or the peer is gone. It does nothing if *c is set already. It reports whether *c is set.
func (l *Listener) next(c **Conn) bool {
	if *c != nil || len(l.waiting) == 0 || l.open.Err() != nil {
		return *c != nil
	}
	i := slices.IndexFunc(l.waiting, func(c *Conn) bool { return c.gone != nil || c.ep.Established() })
	if i < 0 {
		return false
	}
	*c = l.waiting[i]
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// Addr returns the address of the listener, for Dial.
func (l *Listener) Addr() net.Addr { return l.addr }

// Detach stops accepting dialers and returns the socket. The caller must close it, and may pass it to another process,
// which listens on it with net.FileListener and ListenOn. Dialers wait in the queue of the socket until then. Detach does
// not remove a socket file. Accept still returns connections that have reached this listener: see Drain.
func (l *Listener) Detach() (f *os.File, err error) {
	l.w.Do(func(*ucp.Worker) { f, err = l.l.Detach() })
	return f, err
}

// Drain stops accepting dialers and returns when Accept has returned all connections that had reached the listener,
// or their peers are gone. Another goroutine must call Accept meanwhile. A later Close loses no connection. Drain must be
// called at most once. If ctx is done first, Drain returns its error.
func (l *Listener) Drain(ctx context.Context) error {
	var served <-chan struct{}
	l.w.Do(func(*ucp.Worker) { served = l.l.Drain() })
	return l.w.Until(ctx, func() bool {
		select {
		case <-served:
			return len(l.waiting) == 0
		default:
			return false
		}
	})
}

// Close stops listening and closes connections that Accept has not returned, all at the same time: it waits for
// transmission as Conn.Close does for one. Accepted connections are not affected.
func (l *Listener) Close() (err error) {
	l.shut(net.ErrClosed)
	var closing []*ucp.Request
	l.w.Do(func(*ucp.Worker) {
		err = l.l.Close()
		for _, c := range l.waiting {
			if r := c.beginClose(); r != nil {
				closing = append(closing, r)
			}
		}
		l.waiting = nil
	})
	if len(closing) > 0 {
		l.awaitClosed(closing)
	}
	return err
}

// awaitClosed waits until EPs are closed, for closeLimit at most, and releases the requests.
func (l *Listener) awaitClosed(closing []*ucp.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = l.w.Until(ctx, func() bool { // if ctx is done first, the data is sent later
		return !slices.ContainsFunc(closing, func(r *ucp.Request) bool { return !r.Done() })
	})
	l.w.Do(func(*ucp.Worker) {
		for _, r := range closing {
			r.Release()
		}
	})
}

// Dial connects to a listener. For network, address and errors see [ucp.Worker.Dial].
func Dial(ctx context.Context, w *ucp.SharedWorker, network, address string) (*Conn, error) {
	p, err := w.Dial(ctx, network, address, ucp.DialConfig{})
	if err != nil {
		return nil, err
	}
	local, remote := dialedAddrs(p, address)
	return newConn(w, p.EP, local, remote), nil
}
