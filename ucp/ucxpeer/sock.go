package ucxpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// sock is the socket of a connection manager: by it two endpoints exchange their addresses, and its end is the
// end of their connection. A goroutine reads from it.
type sock struct {
	w    *Worker
	e    *EP // of the owner; nil: none yet
	done chan struct{}

	cancel context.CancelFunc // ends the attempt to connect; nil: a client's

	mu     sync.Mutex
	conn   net.Conn // nil until it is connected
	closed bool
}

// sockTimeout is how long a peer may take for its part of the exchange.
const sockTimeout = 20 * time.Second

// lane of a socket's endpoint: lane 0 is the connection manager's.
const sockLane = 1

func (w *Worker) newSock(conn net.Conn) *sock {
	s := &sock{w: w, conn: conn, done: make(chan struct{})}
	w.socks[s] = struct{}{}
	return s
}

// close closes the socket, which ends its goroutine. Any goroutine.
func (s *sock) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.cancel != nil {
		s.cancel()
	}
	if s.conn != nil {
		_ = s.conn.Close() // of a socket to which nothing more is written
	}
}

// wait waits until the goroutine has ended.
func (s *sock) wait() { <-s.done }

// opened sets the connection; false, and closes it, if the sock is closed.
func (s *sock) opened(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // nothing was written to it
		return false
	}
	s.conn = conn
	return true
}

// onOwner has the goroutine of the worker call f, and returns what that returns. ErrClosed: the worker is closed;
// ErrTimedOut: it makes no progress.
func (s *sock) onOwner(f func() error) error {
	result := make(chan error, 1)
	if !s.w.call(func() { result <- f() }) {
		return ucs.ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-time.After(sockTimeout):
		return ucs.ErrTimedOut
	}
}

// read reads a frame: a header and private data.
func (s *sock) read() (h ucxwire.SockHeader, b []byte, err error) {
	var head [ucxwire.SockHeaderLen]byte
	if _, err = io.ReadFull(s.conn, head[:]); err != nil {
		return h, nil, err
	}
	h, ok := ucxwire.DecodeSockHeader(head[:])
	if !ok {
		return h, nil, fmt.Errorf("%w: private data of that length", ucxwire.ErrMalformed)
	}
	b = make([]byte, h.Len)
	_, err = io.ReadFull(s.conn, b)
	return h, b, err
}

// write writes a frame.
func (s *sock) write(status ucs.Status, b []byte) error {
	frame := ucxwire.AppendSockHeader(nil, ucxwire.SockHeader{Len: len(b), Status: ucxwire.StatusOf(status)})
	_, err := s.conn.Write(append(frame, b...))
	return err
}

// untilClosed reads until the peer or this side closes the socket.
func (s *sock) untilClosed() {
	_ = s.conn.SetDeadline(time.Time{}) // fails only for a closed socket, from which reading fails
	_, err := io.Copy(io.Discard, s.conn)
	if err == nil {
		err = ucs.ErrPeerClosed
	} else if !errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", ucs.ErrConnReset, err)
	}
	s.w.call(func() { s.ended(err) })
}

// ended handles the end of the socket. The peer has received everything that it flushed.
func (s *sock) ended(err error) {
	delete(s.w.socks, s)
	s.close()
	if s.e != nil {
		s.e.fail(statusOf(err), err)
	}
}

// endpoint makes the EP of the socket, without a connection.
func (s *sock) endpoint() error {
	if s.w.closed {
		return ucs.ErrClosed
	}
	lane, err := s.w.tcp.NewEP(uct.EPParams{})
	if err != nil {
		return err
	}
	s.e = s.w.newEP(lane.(*ucxtcp.EP))
	s.e.sock, s.e.errMode, s.e.adopted = s, ucxwire.ErrModePeer, true
	return nil
}

// private is the private data of the EP.
func (s *sock) private(version int, resource bool) []byte {
	a := s.e.sockAddress()
	a.HasUUID = false
	a.Devices[0].Addr = nil
	return ucxwire.AppendPrivate(nil, &ucxwire.Private{
		Version: version, EP: s.e.id, ErrMode: s.e.errMode, Address: a, Resource: resource})
}

// sockAddress is the address of the worker with that of the EP's lane.
func (e *EP) sockAddress() ucxwire.Address {
	a := e.w.address()
	a.Devices[0].Ifaces[0].EPs = []ucxwire.EPAddr{{Addr: e.lane.Ops().Connect.EPAddr(nil), Lane: sockLane}}
	return a
}

// connect connects the EP to that of the peer's private data.
func (s *sock) connect(p *ucxwire.Private) error {
	if p.EP == 0 || p.ErrMode != s.e.errMode {
		return fmt.Errorf("%w: the peer's endpoint has no id, or another error mode", ucs.ErrRejected)
	}
	remote, err := netip.ParseAddrPort(s.conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	s.e.form = formOfPrivate(p)
	for _, d := range p.Address.Devices {
		for _, i := range d.Ifaces {
			if i.Transport == tcpSum && len(i.EPs) > 0 {
				s.e.remote = p.EP
				return s.e.lane.Ops().Connect.Connect(s.w.deviceAddr(remote.Addr().Unmap()), i.EPs[0].Addr)
			}
		}
	}
	return fmt.Errorf("%w: the private data have no endpoint of tcp", ucs.ErrUnreachable)
}

// deviceAddr is the address of the device of a peer: a peer on loopback is on this host, and has the same one.
func (w *Worker) deviceAddr(ip netip.Addr) []byte {
	const inet, inet6 = 2, 10
	if ip.IsLoopback() {
		return w.tcp.DeviceAddr(nil)
	}
	if ip.Is4() {
		return append([]byte{0, inet}, ip.AsSlice()...)
	}
	return append([]byte{0, inet6}, ip.AsSlice()...)
}

// Layout says in which form private data are sent, which differs between releases of UCX.
type Layout uint8

// Layouts of private data.
const (
	// LayoutAuto tries the form of release 1.14 and later, and the other one if the listener rejects it.
	LayoutAuto Layout = iota
	// LayoutSince14 is the form of release 1.14 and later.
	LayoutSince14
	// LayoutBefore14 is the form of releases up to 1.13.
	LayoutBefore14
)

// DialConfig tunes Dial.
type DialConfig struct {
	// Layout is the form of the private data.
	Layout Layout
}

// Dial connects to a listener of UCX (ucp_listener_create). network is "tcp", which means the address family of the
// worker's device, or the name of that family, "tcp4" or "tcp6". Dial makes progress meanwhile. Errors: those of package net
// and of ctx, ErrRejected if the listener refuses, ErrInvalidParam for another network.
func (w *Worker) Dial(ctx context.Context, network, address string, cfg DialConfig) (*EP, error) {
	layouts := []bool{true, false}
	switch cfg.Layout {
	case LayoutSince14:
		layouts = layouts[:1]
	case LayoutBefore14:
		layouts = layouts[1:]
	}
	network, err := w.network(network)
	if err != nil {
		layouts = nil
	}
	for _, resource := range layouts {
		var e *EP
		if e, err = w.dial(ctx, network, address, resource); err == nil {
			return e, nil
		}
		if !errors.Is(err, ucs.ErrRejected) {
			break
		}
	}
	return nil, &ucs.OpError{TL: "ucx", Op: "dial " + address, Err: err}
}

// network returns the network of package net for the sockets of connection managers. UCX connects the data connection by
// the family of that socket, so it must be the family of the worker's device. ErrInvalidParam for another network.
func (w *Worker) network(name string) (string, error) {
	own := "tcp4"
	if w.tcp.ListenAddr().Addr().Is6() {
		own = "tcp6"
	}
	if name != "tcp" && name != own {
		return "", fmt.Errorf("%w: network %s: device %s uses %s (Config.TCP.Family)", ucs.ErrInvalidParam, name, w.cfg.Device, own)
	}
	return own, nil
}

func (w *Worker) dial(ctx context.Context, network, address string, resource bool) (*EP, error) {
	if w.closed {
		return nil, ucs.ErrClosed
	}
	s := w.newSock(nil)
	if err := s.endpoint(); err != nil {
		delete(w.socks, s)
		return nil, err
	}
	var result error
	over := false
	private := s.private(2, resource)
	dialing, cancel := context.WithTimeout(ctx, sockTimeout)
	s.cancel = cancel
	go func() {
		defer close(s.done)
		err := s.dialed(dialing, network, address, private)
		cancel()
		s.w.call(func() { result, over = err, true })
		if err == nil {
			s.untilClosed()
		}
	}()
	err := w.Until(ctx, func() bool { return over })
	if err == nil {
		err = result
	}
	if err != nil {
		s.close()
		s.wait()
		delete(w.socks, s)
		_, _ = s.e.Close(CloseForce) // cannot fail
		return nil, err
	}
	return s.e, nil
}

// dialed connects the socket and exchanges private data.
func (s *sock) dialed(ctx context.Context, network, address string, private []byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	if !s.opened(conn) {
		return ucs.ErrClosed
	}
	deadline, _ := ctx.Deadline()
	if err := s.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := s.write(ucs.StatusOK, private); err != nil {
		return err
	}
	h, b, err := s.read()
	if err != nil {
		return err
	}
	if st := h.Status.Local(); st != ucs.StatusOK {
		return st.Err()
	}
	p, err := ucxwire.DecodePrivate(b)
	if err != nil {
		return err
	}
	if err := s.onOwner(func() error { return s.connect(&p) }); err != nil {
		return err
	}
	return s.write(ucs.StatusOK, nil)
}

// ListenConfig tunes a listener.
type ListenConfig struct {
	// OnConnect is called, from Progress, with the EP of each client that has connected.
	OnConnect func(e *EP)
	// Accept reports whether a client may connect; nil: all may. It is called from Progress. An address is no
	// identity: see the package, "Trusted networks only".
	Accept func(from netip.AddrPort) bool
	// OnRefuse is called, from Progress, with the reason why a client did not get an EP; nil drops the reason.
	OnRefuse func(from net.Addr, err error)
}

// Listener accepts clients that use UCX (ucp_ep_create with an address of a socket).
type Listener struct {
	w     *Worker
	cfg   ListenConfig
	l     net.Listener
	done  chan struct{}
	slots chan struct{}
}

// maxExchanges bounds how many clients exchange their data at the same time.
const maxExchanges = 128

// Listen listens for clients. network is as for [Worker.Dial]. Clients connect while the worker makes progress.
// Errors: those of package net, ErrInvalidParam without OnConnect or for another network.
func (w *Worker) Listen(ctx context.Context, network, address string, cfg ListenConfig) (*Listener, error) {
	network, err := w.network(network)
	switch {
	case w.closed:
		err = ucs.ErrClosed
	case cfg.OnConnect == nil:
		err = ucs.ErrInvalidParam
	}
	var socket net.Listener
	if err == nil {
		socket, err = new(net.ListenConfig).Listen(ctx, network, address)
	}
	if err != nil {
		return nil, &ucs.OpError{TL: "ucx", Op: "listen on " + address, Err: err}
	}
	l := &Listener{w: w, cfg: cfg, l: socket, done: make(chan struct{}), slots: make(chan struct{}, maxExchanges)}
	w.listeners[l] = struct{}{}
	go l.serve()
	return l, nil
}

// Addr is the address on which it listens.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Close ends listening. EPs remain. By the goroutine that owns the worker.
func (l *Listener) Close() error {
	delete(l.w.listeners, l)
	return l.shut()
}

// shut closes the socket and waits for the goroutine that accepts.
func (l *Listener) shut() error {
	err := l.l.Close()
	<-l.done
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

func (l *Listener) serve() {
	defer close(l.done)
	for {
		conn, err := l.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: try again when some are closed
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case l.slots <- struct{}{}:
		default: // too many that have not said anything
			_ = conn.Close() // nothing was written to it
			continue
		}
		if !l.w.call(func() { l.accept(conn) }) {
			_ = conn.Close()
			return
		}
	}
}

// accept starts the goroutine of a client.
func (l *Listener) accept(conn net.Conn) {
	if l.w.closed {
		<-l.slots
		_ = conn.Close() // nothing was written to it
		return
	}
	s := l.w.newSock(conn)
	go func() {
		defer close(s.done)
		err := s.accepted(l)
		<-l.slots
		if err != nil {
			s.close()
			s.w.call(func() {
				s.ended(err)
				if l.cfg.OnRefuse != nil {
					l.cfg.OnRefuse(conn.RemoteAddr(), err)
				}
			})
			return
		}
		s.untilClosed()
	}()
}

// accepted exchanges private data with a client.
func (s *sock) accepted(l *Listener) error {
	if err := s.conn.SetDeadline(time.Now().Add(sockTimeout)); err != nil {
		return err
	}
	_, b, err := s.read()
	if err != nil {
		return err
	}
	p, err := ucxwire.DecodePrivate(b)
	if err != nil {
		return ucs.Join(err, s.write(ucs.StatusRejected, nil))
	}
	var private []byte
	err = s.onOwner(func() (err error) {
		private, err = s.admit(l, &p)
		return err
	})
	if err != nil {
		return ucs.Join(err, s.write(ucs.StatusRejected, nil))
	}
	if err := s.write(ucs.StatusOK, private); err != nil {
		return err
	}
	if h, _, err := s.read(); err != nil || h.Status != 0 {
		return ucs.Join(err, h.Status.Local().Err())
	}
	return s.onOwner(func() error {
		if s.w.closed || s.e.state != epOpen {
			return ucs.ErrClosed
		}
		s.e.sendWireup(ucxwire.WireupPreRequest, s.e.sockAddress())
		l.cfg.OnConnect(s.e)
		return nil
	})
}

// admit makes the EP for a client, and returns its private data in the form of the client's.
func (s *sock) admit(l *Listener, p *ucxwire.Private) ([]byte, error) {
	from, err := netip.ParseAddrPort(s.conn.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	if l.cfg.Accept != nil && !l.cfg.Accept(from) {
		return nil, ucs.ErrRejected
	}
	if err := s.endpoint(); err != nil {
		return nil, err
	}
	if err := s.connect(p); err != nil {
		return nil, err
	}
	return s.private(p.Version, p.Resource), nil
}
