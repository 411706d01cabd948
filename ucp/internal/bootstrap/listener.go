package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Default limits for untrusted dialers.
const (
	DefaultMaxHandshakes = 512
	DefaultHelloTimeout  = 5 * time.Second // measured: more than 1 s for a dialer on an overloaded machine
)

// Config configures a [Listener]. The zero value is the default, except for Notify and Stats, which are required.
type Config struct {
	AllowUIDs     []uint32      // unix: users besides the effective one that may connect
	MaxHandshakes int           // limit of concurrent handshakes; 0 means DefaultMaxHandshakes
	MaxPerSource  int           // limit of those from one source; 0 means half of MaxHandshakes
	HelloTimeout  time.Duration // limit for receiving the HELLO, and for sending a reply; 0 means DefaultHelloTimeout
	TLS           TLSConfigs    // required from tcp dialers; nil means no TLS
	Token         string        // required from all dialers, MinTokenLen bytes or more; empty means none
	// Deliver delivers a data connection over tcp to the transport with the id in its preface; false if there is
	// no such transport. It runs on goroutines of the listener and must not block. It may be nil.
	Deliver func(id uint64, c *DataConn) bool
	// Notify is notify of NewInbox.
	Notify func()
	// Stats counts rejected connections; several listeners may share one.
	Stats *Stats
}

// Stats counts connections that failed before Take returned them, and those
// that the worker rejected.
type Stats struct {
	mu sync.Mutex // counters have one writer at a time

	foreign   stats.Counter
	malformed stats.Counter
	silent    stats.Counter
	rejected  stats.Counter
	evicted   stats.Counter

	unauthenticated stats.Counter
}

// AddTo adds the counters to a tree.
func (s *Stats) AddTo(n *stats.Node) {
	n.Add("foreign_users", &s.foreign)
	n.Add("malformed_hellos", &s.malformed)
	n.Add("silent_dialers", &s.silent)
	n.Add("rejected", &s.rejected)
	n.Add("evicted_dialers", &s.evicted)
	n.Add("unauthenticated_dialers", &s.unauthenticated)
}

func (s *Stats) count(c *stats.Counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Inc()
}

// Listener accepts connections and reads their HELLOs, in its own goroutines. Any goroutine may
// call its methods.
type Listener struct {
	cfg     Config
	socket  net.Listener
	ctx     context.Context // canceled by Close
	stop    context.CancelFunc
	running sync.WaitGroup
	inbox   *Inbox

	mu      sync.Mutex
	live    []*Request // connections with a place, the oldest first
	waiting []*Request // connections that wait for a place, the next one first
	lobby   lobby      // connections without a place
}

// Listen listens. network is "tcp", for which an address without a host means loopback, or "unix",
// for which a name that begins with @ is abstract. Close removes a socket file. Other users can connect to it
// only with AllowUIDs. A socket file of a killed process of the same user is
// replaced. Errors: ErrInvalidParam, those of package net.
func Listen(ctx context.Context, network, address string, cfg Config) (*Listener, error) {
	socket, err := listen(ctx, network, address, len(cfg.AllowUIDs) > 0)
	if err != nil {
		return nil, err
	}
	return ListenOn(socket, cfg), nil
}

// ListenOn is Listen with an open socket: a *net.TCPListener or *net.UnixListener, which the Listener then owns.
func ListenOn(socket net.Listener, cfg Config) *Listener {
	cfg.MaxHandshakes = cmp.Or(cfg.MaxHandshakes, DefaultMaxHandshakes)
	cfg.MaxPerSource = cmp.Or(cfg.MaxPerSource, (cfg.MaxHandshakes+1)/2)
	cfg.HelloTimeout = cmp.Or(cfg.HelloTimeout, DefaultHelloTimeout)
	l := &Listener{cfg: cfg, socket: socket, inbox: NewInbox(cfg.Notify), lobby: newLobby(cfg.MaxHandshakes)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.running.Go(l.acceptLoop)
	return l
}

// Detach is Drain, but returns the socket for another listener and does not remove a socket file. New connections wait
// in the queue of the socket. Two processes must not use the socket at once: passing the descriptor to another process,
// as package os/exec does, makes it blocking, so that calls of Accept cannot be interrupted.
func (l *Listener) Detach() (f *os.File, err error) {
	switch s := l.socket.(type) {
	case *net.TCPListener:
		f, err = s.File()
	case *net.UnixListener:
		if f, err = s.File(); err == nil {
			s.SetUnlinkOnClose(false)
		}
	default:
		return nil, fmt.Errorf("socket of type %T: %w", l.socket, ucs.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	_ = l.socket.Close() // waits until Accept has returned
	return f, nil
}

// Drain stops accepting connections. When all accepted connections were served, it closes served and calls notify. Their
// workers must make progress. Close ends the drain early.
func (l *Listener) Drain(notify func()) (served <-chan struct{}) {
	over := make(chan struct{})
	_ = l.socket.Close() // an error means that the socket is closed already
	go func() {
		l.running.Wait()
		close(over)
		notify()
	}()
	return over
}

// listen opens the socket.
func listen(ctx context.Context, network, address string, public bool) (net.Listener, error) {
	if err := checkAddress(network, address); err != nil {
		return nil, err
	}
	switch {
	case network == "unix" && address == "": // package net would choose a random name
		return nil, fmt.Errorf("no name: %w", ucs.ErrInvalidParam)
	case network == "unix" && address[0] != '@':
		return listenFile(ctx, address, public)
	case network == "unix":
		return new(net.ListenConfig).Listen(ctx, network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrInvalidParam, err)
	}
	if host == "" { // package net would listen on all addresses
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return new(net.ListenConfig).Listen(ctx, network, address)
}

// Addr returns the address of the socket.
func (l *Listener) Addr() net.Addr { return l.socket.Addr() }

// Local returns the IP address and port of the socket; the zero AddrPort for a unix socket.
func (l *Listener) Local() netip.AddrPort { return addrOf(l.Addr()) }

// Close closes all connections and waits for the goroutines, which end without further events. Idempotent.
func (l *Listener) Close() error {
	l.stop()
	err := l.socket.Close()
	l.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Inbox returns the queue of the requests of dialers.
func (l *Listener) Inbox() *Inbox { return l.inbox }

// Closed reports whether Close was called.
func (l *Listener) Closed() bool { return l.ctx.Err() != nil }

// Pauses of the accept loop when the process is out of descriptors.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// acceptLoop accepts connections until the socket is closed.
func (l *Listener) acceptLoop() {
	pause := acceptPauseMin
	for l.ctx.Err() == nil {
		conn, err := l.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			sleep(l.ctx, pause)
			pause = min(2*pause, acceptPauseMax)
			continue
		}
		pause = acceptPauseMin
		l.admit(conn)
	}
}

// admit serves a connection, unless its user is not permitted or the lobby is full.
func (l *Listener) admit(conn net.Conn) {
	from, err := identify(conn)
	if err != nil || !from.permitted(l.cfg.AllowUIDs) {
		l.cfg.Stats.count(&l.cfg.Stats.foreign)
		reject(conn, CodeForeignUser)
		_ = conn.Close()
		return
	}
	r := newRequest(l, conn, from)
	if !l.enterLobby(r, time.Now()) {
		l.cfg.Stats.count(&l.cfg.Stats.evicted)
		if r.canReply() {
			reject(conn, CodeTooMany)
		}
		r.cancel()
		_ = conn.Close()
		return
	}
	l.running.Go(r.serve)
}
