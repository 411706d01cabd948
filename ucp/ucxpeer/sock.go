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

// sock is a socket of UCX's connection manager. Two endpoints exchange their addresses through it, and their connection
// ends when it ends. A goroutine reads from it.
type sock struct {
	w    *Worker
	e    *EP // used by the owner of the worker only; nil at first
	done chan struct{}

	cancel context.CancelFunc // cancels the attempt to connect; nil for an accepted socket

	mu     sync.Mutex
	conn   net.Conn // nil until it is connected
	closed bool
}

// sockTimeout limits the time for which a peer may delay the exchange of addresses.
const sockTimeout = 20 * time.Second

// sockLane is the lane of an endpoint of a socket: lane 0 is that of the connection manager.
const sockLane = 1

func (w *Worker) newSock(conn net.Conn) *sock {
	s := &sock{w: w, conn: conn, done: make(chan struct{})}
	w.socks[s] = struct{}{}
	return s
}

// close closes the socket, which ends its goroutine. Any goroutine may call it.
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
		_ = s.conn.Close() // nothing more is written to it
	}
}

// wait waits until the goroutine has ended.
func (s *sock) wait() { <-s.done }

// setConn sets the connection. If the sock is closed, it closes the connection and returns false.
func (s *sock) setConn(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // nothing was written to it
		return false
	}
	s.conn = conn
	return true
}

// onOwner calls f in the goroutine that owns the worker, and returns its error. ErrClosed if the worker is closed,
// ErrTimedOut if it makes no progress.
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
	_ = s.conn.SetDeadline(time.Time{}) // fails only if the socket is closed; then the read fails too
	_, err := io.Copy(io.Discard, s.conn)
	if err == nil {
		err = ucs.ErrPeerClosed
	} else if !errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", ucs.ErrConnReset, err)
	}
	s.w.call(func() { s.handleEnd(err) })
}

// handleEnd fails the EP when the socket has ended.
func (s *sock) handleEnd(err error) {
	delete(s.w.socks, s)
	s.close()
	if s.e != nil {
		s.e.fail(statusOf(err), err)
	}
}

// addEP adds the EP of the socket, which is not connected.
func (s *sock) addEP() error {
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

// privateData returns the private data of the EP.
func (s *sock) privateData(version int, resource bool) []byte {
	a := s.e.sockAddress()
	a.HasUUID = false
	a.Devices[0].Addr = nil
	return ucxwire.AppendPrivate(nil, &ucxwire.Private{
		Version: version, EP: s.e.id, ErrMode: s.e.errMode, Address: a, Resource: resource})
}

// sockAddress returns the address of the worker with the address of the EP's lane.
func (e *EP) sockAddress() ucxwire.Address {
	a := e.w.address()
	a.Devices[0].Ifaces[0].EPs = []ucxwire.EPAddr{{Addr: e.lane.Ops().Connect.EPAddr(nil), Lane: sockLane}}
	return a
}

// connect connects the EP to the endpoint in the peer's private data.
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

// deviceAddr returns the device address of a peer. A peer on loopback is on this host, so its device is that of this
// worker.
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

// Layout is the format of private data, which differs between releases of UCX.
type Layout uint8

// Layouts of private data.
const (
	// LayoutAuto tries the format of release 1.14 and later, then the other one if the listener rejects the first. A listener of
	// 1.13 may abort when it rejects a connection, by an assertion of its own: set LayoutBefore14 if the release is known.
	LayoutAuto Layout = iota
	// LayoutSince14 is the format of release 1.14 and later.
	LayoutSince14
	// LayoutBefore14 is the format of releases up to 1.13.
	LayoutBefore14
)

// DialConfig tunes Dial.
type DialConfig struct {
	// Layout is the format of the private data.
	Layout Layout
}

// Dial connects to a listener of UCX (ucp_listener_create). network is "tcp", which means the address family of the
// worker's device, or the name of that family, "tcp4" or "tcp6". Dial makes progress while it waits. Errors: those of package
// net and of ctx, ErrRejected if the listener rejects the connection, ErrInvalidParam for another network.
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

// network returns the network of package net for sockets of the connection manager. UCX uses the address family of the
// socket also for the data connection, so it must be that of the worker's device. ErrInvalidParam for another network.
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
	if err := s.addEP(); err != nil {
		delete(w.socks, s)
		return nil, err
	}
	var result error
	over := false
	private := s.privateData(2, resource)
	dialing, cancel := context.WithTimeout(ctx, sockTimeout)
	s.cancel = cancel
	go func() {
		defer close(s.done)
		err := s.exchangeAsClient(dialing, network, address, private)
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

// exchangeAsClient connects the socket and exchanges private data.
func (s *sock) exchangeAsClient(ctx context.Context, network, address string, private []byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	if !s.setConn(conn) {
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
	// Accept reports whether a client may connect; nil accepts all clients. It is called from Progress. An address does not
	// authenticate a client: see the package, "Trusted networks only".
	Accept func(from netip.AddrPort) bool
	// OnRefuse is called, from Progress, with the reason when a client could not connect. It may be nil.
	OnRefuse func(from net.Addr, err error)
}

// Listener accepts clients that use UCX (ucp_ep_create with a socket address).
type Listener struct {
	w     *Worker
	cfg   ListenConfig
	l     net.Listener
	done  chan struct{}
	slots chan struct{}
}

// maxHandshakes limits the clients that exchange private data at the same time.
const maxHandshakes = 128

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
	l := &Listener{w: w, cfg: cfg, l: socket, done: make(chan struct{}), slots: make(chan struct{}, maxHandshakes)}
	w.listeners[l] = struct{}{}
	go l.serve()
	return l, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Close stops listening. EPs of clients remain open. Only the goroutine that owns the worker may call it.
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
		if err != nil { // for example too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case l.slots <- struct{}{}:
		default:
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
		err := s.exchangeAsServer(l)
		<-l.slots
		if err != nil {
			s.close()
			s.w.call(func() {
				s.handleEnd(err)
				if l.cfg.OnRefuse != nil {
					l.cfg.OnRefuse(conn.RemoteAddr(), err)
				}
			})
			return
		}
		s.untilClosed()
	}()
}

// exchangeAsServer exchanges private data with a client.
func (s *sock) exchangeAsServer(l *Listener) error {
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

// admit connects an EP to a client, and returns its private data in the format of the client's.
func (s *sock) admit(l *Listener, p *ucxwire.Private) ([]byte, error) {
	from, err := netip.ParseAddrPort(s.conn.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	if l.cfg.Accept != nil && !l.cfg.Accept(from) {
		return nil, ucs.ErrRejected
	}
	if err := s.addEP(); err != nil {
		return nil, err
	}
	if err := s.connect(p); err != nil {
		return nil, err
	}
	return s.privateData(p.Version, p.Resource), nil
}
