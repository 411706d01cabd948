package ucp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// MaxPrivate is the maximum length of private data of a dialer or listener, in bytes.
const MaxPrivate = bootstrap.MaxPrivate

// Peer is a worker that [Worker.Dial] has connected to, or that has connected to a
// [Listener].
type Peer struct {
	EP      *EP
	From    Identity
	Local   netip.AddrPort // address of this side of the socket; the zero AddrPort over unix
	Private []byte         // private data of the peer; belongs to the caller
	// Keys are the published keys of the listener, by name, unpacked for EP; nil at the listener. The
	// caller must close them.
	Keys map[string]*RKey
}

// ConnRequest is a dialer that ListenConfig.Accept accepts or rejects.
type ConnRequest struct {
	From    Identity
	Private []byte // private data of the dialer; belongs to the caller

	l        *Listener
	waiting  *bootstrap.Request // nil when Accept has returned
	answer   []byte
	answered bool
	migrated bool
}

// Answer sets the private data of the reply, which replaces that of the ListenConfig if
// the dialer is accepted; a rejection has none by default. It copies b. ErrTooLong over MaxPrivate bytes.
func (r *ConnRequest) Answer(b []byte) error {
	if err := checkPrivate(b); err != nil {
		return err
	}
	r.answer, r.answered = slices.Clone(b), true
	return nil
}

// Migrate moves the dialer to another worker: to is a listener of that worker which [Worker.ListenWith] has returned for
// the listener of the request, or the listener that ListenWith was called with. Then Accept of to accepts or rejects the
// dialer, in Progress of its worker, and the result of Accept of this listener has no effect. Only Accept may call it, once.
// Errors: ErrInvalidParam if the listeners share no socket; ErrClosed if to is closed: Accept then decides.
func (r *ConnRequest) Migrate(to *Listener) error {
	switch {
	case r.waiting == nil || r.migrated:
		return &Error{Op: "migrate a dialer", Err: fmt.Errorf("called after Accept, or twice: %w", ucs.ErrInvalidParam)}
	case to == nil || to == r.l || to.boot != r.l.boot:
		return &Error{Op: "migrate a dialer", Err: fmt.Errorf("no other listener of its socket: %w", ucs.ErrInvalidParam)}
	}
	if err := r.waiting.Migrate(to.inbox); err != nil {
		return &Error{Op: "migrate a dialer", Err: err}
	}
	r.migrated = true
	return nil
}

func checkPrivate(b []byte) error {
	if len(b) > MaxPrivate {
		return fmt.Errorf("private data of %d bytes: %w of %d", len(b), ucs.ErrTooLong, MaxPrivate)
	}
	return nil
}

// ListenConfig configures a [Listener]. The zero value accepts every dialer that AllowUIDs
// permits. Callbacks run inside Progress of the worker: they may start operations, open and
// close EPs and listeners, and must not call Progress.
type ListenConfig struct {
	// Private is sent to accepted dialers, unless Accept sets other data. At most
	// MaxPrivate bytes; copied.
	Private []byte
	// Keys are published from the beginning; see Listener.Publish.
	Keys map[string]*Mem
	// AllowUIDs are the users, in addition to the effective user of this process, that may dial over a unix socket. Over
	// tcp the user is unknown, and every dialer is accepted unless Accept, TLS or a token rejects it.
	AllowUIDs []uint32

	// Accept accepts or rejects a dialer. nil accepts all. A rejected dialer gets no data of this
	// worker except that of ConnRequest.Answer. An accepted dialer may still fail to
	// connect.
	Accept func(r *ConnRequest) bool
	// OnPeer is called for each peer when it has connected: before Dial returns at the peer, and
	// before any message of the peer arrives on the EP.
	OnPeer func(p *Peer)
	// OnPeerGone is called once when the EP of a peer has failed, with the reason: an error that wraps
	// ErrPeerClosed if the peer closed, ErrConnReset if it died. Over rc and ud a dead peer is detected
	// when the EP is used. The EP is closed when
	// OnPeerGone returns, also if OnPeerGone is nil. It is not called for EPs that this side closes.
	OnPeerGone func(p *Peer, err error)

	// MaxHandshakes limits the dialers that have not connected yet, MaxPerSource those of one source. Further dialers wait
	// for a place: up to 8 * MaxHandshakes, and at least 1024. A dialer that takes more than 1/50 of HelloTimeout to send its
	// HELLO, or to connect, can be evicted for a dialer that waits: dialers of the source with the most dialers first, and
	// of these the ones without a HELLO first. A source is an IPv4 address, an IPv6 /64 or, over unix sockets, a process.
	// 0 means 512 for MaxHandshakes, and half of MaxHandshakes for MaxPerSource.
	MaxHandshakes, MaxPerSource int
	// HelloTimeout limits the time of a dialer for TLS and its HELLO, and then the time to read the reply.
	// To connect it has 8 times as long, or Config.WireupTimeout of one of the two sides if that is
	// shorter. A network device of the dialer that does not reach the listener takes a part of that time, or
	// GUCX_TCP_CONN_TIMEOUT (10 s) if that is shorter, before the dialer tries the next one. 0 means 5 s.
	HelloTimeout time.Duration
}

// Listener accepts connections to a worker. It belongs to the goroutine that owns the worker, which
// must make progress to reply to dialers: a blocking call, such as Serve, wakes up for
// them.
type Listener struct {
	w    *Worker
	cfg  ListenConfig
	boot *bootstrap.Listener
	// inbox is the inbox of boot, or another one if the listener has no socket of its own.
	inbox *bootstrap.Inbox
	owns  bool           // it owns the socket, which other listeners may share
	at    netip.AddrPort // address of the socket; the zero AddrPort for a unix socket

	keys    map[string][]byte // published keys, packed, by name
	keysLen int               // bytes that count against bootstrap.MaxKeysLen
	closed  bool
}

// listening is the state of a worker's listeners.
type listening struct {
	listeners []*Listener
	expected  map[*EP]*expected // peers that were accepted and have not connected yet
	stats     *bootstrap.Stats  // counters of all listeners; nil before the first
	hasNews   atomic.Bool       // a listener has something for the worker; stored by its goroutines; pairs with the load in answerDialers
}

// expected is an accepted dialer that has not connected yet.
type expected struct {
	l   *Listener
	req *bootstrap.Request
}

// Listen lets peers connect to the worker by [Worker.Dial]: over "tcp", or over "unix", where an
// address that begins with @ is an abstract name. ctx is only used to resolve a host name, which may block. An
// empty host in tcp means loopback: Listen only listens beyond it if the address says so, for example
// "0.0.0.0:7000". With port 0 the kernel chooses one, see Addr. A unix socket accepts
// processes of the same effective user and of AllowUIDs. Close removes its file; the file of
// a killed process is replaced. Closing the worker closes the listener.
//
// Network: with an address that is not loopback, data connections use the network too. Listen makes transports
// that only use loopback by default (tcp without GUCX_TCP_DEVICES) open the device of the
// address; for 0.0.0.0 or [::], every device that reaches other hosts. These devices are open until the worker is
// closed, and in its Address. Dial does the same with the device on the route to the
// listener. GUCX_NET_DEVICES applies.
//
// Ports: the tcp data connections of dialers use the port of the listener too, at the address that they have
// dialed, so no other port must be open. tcp also has a port of its own (GUCX_TCP_PORT), for peers that
// use NewEP and after the listener is closed, unless GUCX_TCP_SHARE_PORT is y.
//
// TLS: without it, any process that reaches a tcp address may dial, on loopback every user of the
// host, and worker addresses, private data and keys are sent unencrypted. With the TLS settings of a
// transport (GUCX_TCP_TLS_CERT, _KEY and _CA), Listen and Dial use TLS 1.3 with the same
// certificates over tcp before anything else is sent. Both sides need a certificate of the
// authorities which carries GUCX_TCP_TLS_NAME or, without that, the IP address that the other
// side sees. Its name is in ConnRequest.From, Peer.From and EP.PeerIdentity. Unix sockets do not
// use TLS.
//
// Token: with Config.AuthToken both sides prove, over any
// socket, that they have the same token before they send anything else. It authenticates and does not encrypt.
//
// Errors: ErrInvalidParam, ErrTooLong, ErrClosed, those of package net.
func (w *Worker) Listen(ctx context.Context, network, address string, cfg ListenConfig) (*Listener, error) {
	return w.listen(network, address, cfg, func(c bootstrap.Config) (*bootstrap.Listener, error) {
		return bootstrap.Listen(ctx, network, address, c)
	})
}

// ListenOn is [Worker.Listen] with an open socket: a *net.TCPListener or *net.UnixListener, for example from
// net.FileListener with a descriptor of another process ([Listener.Detach]) or of systemd. The socket then belongs to
// the Listener. AllowUIDs does not change the mode of a socket file. Errors: ErrInvalidParam, ErrTooLong,
// ErrClosed; after an error the socket belongs to the caller.
func (w *Worker) ListenOn(socket net.Listener, cfg ListenConfig) (*Listener, error) {
	at := socket.Addr()
	return w.listen(at.Network(), at.String(), cfg, func(c bootstrap.Config) (*bootstrap.Listener, error) {
		switch socket.(type) {
		case *net.TCPListener, *net.UnixListener:
			return bootstrap.ListenOn(socket, c), nil
		}
		return nil, fmt.Errorf("socket of type %T: %w", socket, ucs.ErrInvalidParam)
	})
}

// openFunc opens or takes over the socket and starts to listen.
type openFunc func(bootstrap.Config) (*bootstrap.Listener, error)

// ListenWith returns a listener that gets the dialers that Accept of another listener migrates to it: with is a
// listener of another worker of the context, which another goroutine may own. The two share the socket of with, whose
// limits of dialers and users apply; MaxHandshakes, MaxPerSource and AllowUIDs of cfg have no effect. So one port serves
// several workers, each with a CPU of its own: see [ConnRequest.Migrate]. Errors: ErrInvalidParam, ErrTooLong,
// ErrClosed, also if with is closed; those of opening the network device of the listener.
func (w *Worker) ListenWith(with *Listener, cfg ListenConfig) (*Listener, error) {
	return w.addListener("listen with another worker", cfg, func(l *Listener) error { return l.join(with) })
}

func (w *Worker) listen(network, address string, cfg ListenConfig, open openFunc) (*Listener, error) {
	return w.addListener("listen on "+network+" "+address, cfg, func(l *Listener) error { return l.open(open) })
}

// addListener makes a listener of the worker, which open opens.
func (w *Worker) addListener(op string, cfg ListenConfig, open func(*Listener) error) (*Listener, error) {
	l := &Listener{w: w, cfg: cfg, keys: map[string][]byte{}}
	if err := open(l); err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	w.connecting.listening.listeners = append(w.connecting.listening.listeners, l)
	return l, nil
}

// open checks the configuration and listens.
func (l *Listener) open(open openFunc) (err error) {
	if err := l.configure(); err != nil {
		return err
	}
	l.owns = true
	l.boot, err = open(bootstrap.Config{
		AllowUIDs: l.cfg.AllowUIDs, MaxHandshakes: l.cfg.MaxHandshakes, MaxPerSource: l.cfg.MaxPerSource, HelloTimeout: l.cfg.HelloTimeout,
		Notify: l.w.dialersWait, Deliver: l.w.ctx.ports.Deliver, Stats: l.w.listenStats(), TLS: l.w.ctx.tls, Token: l.w.ctx.token,
	})
	if err != nil {
		return err
	}
	l.at, l.inbox = l.boot.Local(), l.boot.Inbox()
	if err = l.w.useNetwork(l.at, true); err != nil {
		return ucs.Join(err, l.boot.Close())
	}
	return nil
}

// join is open for a listener that shares the socket of another one.
func (l *Listener) join(with *Listener) error {
	if with == nil || with.w.ctx != l.w.ctx || with.w == l.w {
		return fmt.Errorf("want a listener of another worker of the context: %w", ucs.ErrInvalidParam)
	}
	if err := l.configure(); err != nil {
		return err
	}
	if with.boot.Closed() {
		return ucs.ErrClosed
	}
	l.boot, l.at, l.inbox = with.boot, with.at, bootstrap.NewInbox(l.w.dialersWait)
	return l.w.useNetwork(l.at, true)
}

// configure checks the configuration and makes it complete.
func (l *Listener) configure() error {
	if l.w.closed {
		return ucs.ErrClosed
	}
	if l.cfg.MaxHandshakes < 0 || l.cfg.MaxPerSource < 0 || l.cfg.HelloTimeout < 0 {
		return fmt.Errorf("%d handshakes, %d of a source, of %v: %w", l.cfg.MaxHandshakes, l.cfg.MaxPerSource, l.cfg.HelloTimeout, ucs.ErrInvalidParam)
	}
	l.cfg.HelloTimeout = cmp.Or(l.cfg.HelloTimeout, bootstrap.DefaultHelloTimeout)
	if err := checkPrivate(l.cfg.Private); err != nil {
		return err
	}
	l.cfg.Private = slices.Clone(l.cfg.Private)
	for name, mem := range l.cfg.Keys {
		if err := l.publish(name, mem); err != nil {
			return err
		}
	}
	return nil
}

// listenStats returns the counters of the worker's listeners.
func (w *Worker) listenStats() *bootstrap.Stats {
	if w.connecting.listening.stats == nil {
		w.connecting.listening.stats = new(bootstrap.Stats)
		w.connecting.listening.stats.AddTo(w.stats.root.Child("listen"))
	}
	return w.connecting.listening.stats
}

// Addr is the address of the listener. Peers dial Addr().Network() and
// Addr().String().
func (l *Listener) Addr() net.Addr { return l.boot.Addr() }

// Detach is Drain, but returns the socket, which stays open: dialers wait in it until a process listens on it by
// ListenOn, this process or another one with the descriptor. The caller must close it. A socket file is not removed.
// Errors: those of package net.
func (l *Listener) Detach() (*os.File, error) {
	f, err := l.boot.Detach()
	if err != nil {
		return nil, &Error{Op: "detach the socket of " + l.Addr().String(), Err: err}
	}
	return f, nil
}

// Drain stops accepting dialers and serves those that it has accepted: served is closed when each of them has
// connected or failed. This needs progress of the worker, and of the workers that dialers were migrated to. Call Close
// afterwards; it rejects dialers that are not served yet. Listeners that share a socket stop together: call Drain or
// Detach of one of them, once.
func (l *Listener) Drain() (served <-chan struct{}) { return l.boot.Drain(l.w.dialersWait) }

// Publish sends the key of mem to dialers that are accepted later, under a name of 1 to
// 255 bytes; it replaces a key with the same name. Every process that may dial then has the access
// rights of mem. Unpublish the name before mem is closed. Errors: ErrInvalidParam; ErrTooLong if
// keys and names are more than 1 MiB.
func (l *Listener) Publish(name string, mem *Mem) error {
	if err := l.publish(name, mem); err != nil {
		return &Error{Op: fmt.Sprintf("publish %.40q", name), Err: err}
	}
	return nil
}

func (l *Listener) publish(name string, mem *Mem) error {
	switch {
	case name == "" || len(name) > bootstrap.MaxName:
		return fmt.Errorf("%w: a name has 1 to %d bytes, %.40q has %d", ucs.ErrInvalidParam, bootstrap.MaxName, name, len(name))
	case mem == nil:
		return fmt.Errorf("%w: no memory is under the name %q", ucs.ErrInvalidParam, name)
	}
	if !(*region.Mem)(mem).Of(&l.w.ctx.memory) {
		return fmt.Errorf("memory of another context, whose key opens nothing at this worker: %w", ucs.ErrInvalidParam)
	}
	key := mem.Pack()
	n := bootstrap.KeyLen(name, key)
	if old, ok := l.keys[name]; ok {
		n -= bootstrap.KeyLen(name, old)
	}
	if len(key) > bootstrap.MaxKeyLen || l.keysLen+n > bootstrap.MaxKeysLen {
		return fmt.Errorf("%d keys and this one: %w", len(l.keys), ucs.ErrTooLong)
	}
	l.keysLen += n
	l.keys[name] = key
	return nil
}

// Unpublish removes a key: dialers that are accepted later do not get it. For peers that have
// the key it is valid until the memory is closed.
func (l *Listener) Unpublish(name string) {
	if key, ok := l.keys[name]; ok {
		l.keysLen -= bootstrap.KeyLen(name, key)
		delete(l.keys, name)
	}
}

// Close stops listening. It rejects dialers that have not connected, also those that were migrated; connected peers
// are not affected. A listener that shares the socket of another one rejects its own dialers only, and the other one
// listens on. Idempotent.
func (l *Listener) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	w := l.w
	w.connecting.listening.listeners = slices.DeleteFunc(w.connecting.listening.listeners, func(o *Listener) bool { return o == l })
	var err error
	if l.owns {
		err = l.boot.Close()
	}
	l.inbox.Close()
	for e, x := range maps.Clone(w.connecting.listening.expected) {
		if x.l == l {
			e.giveUpHalfOpen()
		}
	}
	return err
}

// stopListening closes all listeners.
func (w *Worker) stopListening() {
	for _, l := range slices.Clone(w.connecting.listening.listeners) {
		w.addCloseError(l.Close())
	}
}

// dialersWait makes the worker call answerDialers. Any goroutine may call it.
func (w *Worker) dialersWait() {
	w.connecting.listening.hasNews.Store(true)
	w.engine.Post()
}

// answerDialers handles the news of all listeners, and returns the number of handled connections
// and dialers.
func (w *Worker) answerDialers() (n int) {
	if !w.connecting.listening.hasNews.Load() {
		return 0
	}
	w.connecting.listening.hasNews.Store(false)
	n = w.adoptAll()
	for _, l := range slices.Clone(w.connecting.listening.listeners) { // callbacks may open and close some
		for _, r := range l.inbox.Take() {
			n++
			l.handleDialer(r)
		}
	}
	return n
}

// handleDialer handles a dialer that waits for a reply or has closed its socket.
func (l *Listener) handleDialer(r *bootstrap.Request) {
	switch {
	case l.closed:
		r.Drop()
	case !r.Gone():
		l.decide(r)
	default:
		for e, x := range l.w.connecting.listening.expected {
			if x.req == r {
				e.giveUpHalfOpen()
				return
			}
		}
	}
}

// giveUpHalfOpen destroys a connection that no user has. It does not notify the peer, which is dead
// or detects that its socket is closed.
func (e *EP) giveUpHalfOpen() {
	e.abort(ucs.StatusCanceled)
	e.destroy()
}

// decide accepts or rejects a dialer.
func (l *Listener) decide(r *bootstrap.Request) {
	w := l.w
	p, err := w.peers.Find(r.Hello.Addr)
	if err != nil {
		r.Reject(bootstrap.CodeMalformed, nil)
		return
	}
	w.peers.Hold(p) // callbacks may close the last EP to it
	defer w.peers.Drop(p)
	req := &ConnRequest{From: Identity(r.From), Private: slices.Clone(r.Hello.Private), l: l, waiting: r}
	ok := l.cfg.Accept == nil || l.cfg.Accept(req)
	req.waiting = nil
	switch {
	case req.migrated:
	case l.closed:
		r.Drop()
	case !ok:
		r.Reject(bootstrap.CodeRejected, req.answer)
	case !p.Best[wireup.AM].OK || len(p.Aux) == 0:
		w.rejectUnreachable(r, p)
	case w.hasTooManyEPs(p):
		w.stats.rejectedEPs.Inc()
		r.Reject(bootstrap.CodeTooManyEPs, nil)
	default:
		if !req.answered {
			req.answer = l.cfg.Private
		}
		own, err := w.ownAt(r.Local, l.at)
		if err != nil {
			w.addCloseError(err)
			r.Reject(bootstrap.CodeRejected, nil)
			return
		}
		within := l.connectWithin(r.Hello.Within)
		e := l.expect(r, p, own, within)
		r.Accept(&bootstrap.Answer{EP: e.id, Addr: own.packed, Private: req.answer, Keys: l.keys, Within: within})
	}
}

// rejectUnreachable rejects a dialer that the program has accepted, with the reasons why no
// transport reaches it. The reasons name devices of this side, so other dialers do not get them.
func (w *Worker) rejectUnreachable(r *bootstrap.Request, p *conn.Peer) {
	switch {
	case outOfFiles():
		r.Reject(bootstrap.CodeNoFiles, nil)
	case len(p.Aux) == 0:
		r.Reject(bootstrap.CodeUnreachable, nil, w.obstacles(wireup.Aux, p.Addr)...)
	default:
		r.Reject(bootstrap.CodeUnreachable, nil, w.obstacles(wireup.AM, p.Addr)...)
	}
}

// expect makes the EP for an accepted dialer. The EP is half open, and no user has it, until the
// first handshake message of the peer arrives. own is the address of this side that the peer gets.
func (l *Listener) expect(r *bootstrap.Request, p *conn.Peer, own localAddress, within time.Duration) *EP {
	w := l.w
	e := &EP{w: w, peer: p, origin: epOrigin{passive: true, unproven: true, unverified: true}, identity: new(Identity(r.From))}
	w.addPeerRef(e)
	e.countMade(true)
	e.beginTo(0, own)
	e.link.expireWithin(within + l.cfg.HelloTimeout) // the dialer must read the ACCEPT first
	e.link.within = within
	if w.connecting.listening.expected == nil {
		w.connecting.listening.expected = map[*EP]*expected{}
	}
	w.connecting.listening.expected[e] = &expected{l, r}
	return e
}

// passToUser passes the EP of an expected peer to the user. It is called when the peer's first
// handshake message has arrived, before the reply to it. It returns false if the user has closed
// the EP.
func (w *Worker) passToUser(e *EP) bool {
	x := w.connecting.listening.expected[e]
	if x == nil || e.state != epOpen {
		return true
	}
	delete(w.connecting.listening.expected, e)
	x.req.Connected()
	e.link.endHalfOpen()
	e.origin.passive, e.origin.unproven = false, false
	p := &Peer{EP: e, From: Identity(x.req.From), Local: x.req.Local, Private: slices.Clone(x.req.Hello.Private)}
	e.onError = func(e *EP, err error) { x.l.peerGone(p, err) }
	if x.l.cfg.OnPeer != nil {
		x.l.cfg.OnPeer(p)
	}
	return e.link != nil && e.state < epFailed
}

// peerGone calls OnPeerGone and closes the EP of a peer that has failed.
func (l *Listener) peerGone(p *Peer, err error) {
	if l.cfg.OnPeerGone != nil {
		l.cfg.OnPeerGone(p, err)
	}
	if r, _ := p.EP.Close(CloseForce); r != nil { // an error means that it is closed already
		r.Release()
	}
}

// dropExpected drops the dialer of an EP that is destroyed before its peer has connected.
func (w *Worker) dropExpected(e *EP) {
	if x := w.connecting.listening.expected[e]; x != nil {
		delete(w.connecting.listening.expected, e)
		x.req.Drop()
	}
}
