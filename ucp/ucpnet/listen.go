package ucpnet

import (
	"context"
	"net"
	"os"
	"slices"

	"github.com/gucx/gucx/ucp"
)

// backlog is how many connections wait for Accept; more are rejected. As the kernel's
// default for sockets (net.core.somaxconn before Linux 5.4).
const backlog = 128

// Listener accepts connections. All methods may be called by any goroutine.
type Listener struct {
	w    *ucp.SharedWorker
	l    *ucp.Listener
	addr net.Addr
	open context.Context // ends with Close
	shut context.CancelCauseFunc

	// The worker's lock is theirs.
	waiting []*Conn           // for Accept
	conns   map[*ucp.EP]*Conn // whose EP has not gone
}

var _ net.Listener = (*Listener)(nil)

// Listen accepts connections to the worker. For network and address, for who may connect and
// for the errors see [ucp.Worker.Listen].
func Listen(ctx context.Context, w *ucp.SharedWorker, network, address string) (*Listener, error) {
	return listen(w, func(w *ucp.Worker, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.Listen(ctx, network, address, cfg)
	})
}

// ListenOn is Listen with a socket that is open, of another process or of systemd: see [ucp.Worker.ListenOn].
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
			OnPeer:     l.come,
			OnPeerGone: l.gone,
		})
	})
	if err != nil {
		return nil, err
	}
	l.addr = l.l.Addr()
	return l, nil
}

// come takes a peer that has connected.
func (l *Listener) come(p *ucp.Peer) {
	local := l.addr
	if p.Local.IsValid() {
		local = net.TCPAddrFromAddrPort(p.Local)
	}
	c := newConn(l.w, p.EP, local, peerAddr(p.From))
	c.listener = l
	l.conns[p.EP] = c
	l.waiting = append(l.waiting, c)
}

// gone keeps what a peer has sent whose EP has failed.
func (l *Listener) gone(p *ucp.Peer, err error) {
	if c := l.conns[p.EP]; c != nil {
		delete(l.conns, p.EP)
		c.lost(err)
	}
}

// Accept returns the next connection, a *Conn, when the Dial of the peer can return, whatever this
// side does then. net.ErrClosed if the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	var c *Conn
	err := l.w.Until(l.open, func() bool { return l.take(&c) })
	if c != nil {
		return c, nil
	}
	if l.open.Err() != nil {
		err = net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: asNet("accept", err)}
}

// take takes the next connection for a call of Accept, unless that has one: one whose peer needs no
// more progress of this side for its Dial to return, or that is gone, with what the peer has sent.
func (l *Listener) take(c **Conn) bool {
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

// Addr is where it listens, as Dial takes it.
func (l *Listener) Addr() net.Addr { return l.addr }

// Detach accepts no more dialers and returns the socket, for another process that makes a listener of it by
// net.FileListener and ListenOn: dialers wait in the socket until then. The caller closes it. A socket file is not
// removed. Accept goes on with those that have reached this listener: see Drain.
func (l *Listener) Detach() (f *os.File, err error) {
	l.w.Do(func(*ucp.Worker) { f, err = l.l.Detach() })
	return f, err
}

// Drain accepts no more dialers and returns when Accept has returned all those that had reached the listener,
// or they have gone: so another goroutine has to be in Accept. Then Close loses none of them. Call it once. If ctx ends
// first, its error is returned.
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

// Close listens no more and closes what nobody has accepted. Connections that were accepted
// stay.
func (l *Listener) Close() (err error) {
	l.shut(net.ErrClosed)
	var waiting []*Conn
	l.w.Do(func(*ucp.Worker) {
		err = l.l.Close()
		waiting, l.waiting = l.waiting, nil
	})
	for _, c := range waiting {
		_ = c.Close() // nobody has it
	}
	return err
}

// Dial connects to a worker that listens. For network, address and errors see
// [ucp.Worker.Dial].
func Dial(ctx context.Context, w *ucp.SharedWorker, network, address string) (*Conn, error) {
	p, err := w.Dial(ctx, network, address, ucp.DialConfig{})
	if err != nil {
		return nil, err
	}
	local, remote := dialedAddrs(p, address)
	return newConn(w, p.EP, local, remote), nil
}
