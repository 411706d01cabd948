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

// Defaults of the limits on what untrusted dialers occupy, and for how long.
const (
	DefaultMaxHandshakes = 512
	DefaultHelloTimeout  = 5 * time.Second // a live process on an overloaded machine took more than 1 s
)

// Config configures a [Listener]. The zero value is the default, but for Notify and Stats.
type Config struct {
	AllowUIDs     []uint32      // unix: users beside the effective one that may connect
	MaxHandshakes int           // connections at a time; 0 means DefaultMaxHandshakes
	MaxPerSource  int           // of these, from one source; 0 means half of MaxHandshakes
	HelloTimeout  time.Duration // up to the end of the HELLO, and to send an answer; 0 means DefaultHelloTimeout
	TLS           TLSConfigs    // demanded of tcp dialers; nil means no TLS
	Token         string        // demanded of all dialers, MinTokenLen bytes or more; empty means none
	// Deliver passes on a data connection over tcp, whose preface names an id; false if nobody has that id.
	// It runs on goroutines of the listener and must not block. nil: there is nobody.
	Deliver func(id uint64, c *DataConn) bool
	// Notify is called when Take has something. It runs on a goroutine of the listener and
	// must not block.
	Notify func()
	// Stats counts what was refused; several listeners may share one.
	Stats *Stats
}

// Stats counts connections that came to nothing before the worker learned of them, and those
// that it rejected.
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

// Listener accepts connections and reads their HELLOs in goroutines of its own. Methods may
// be called by any goroutine.
type Listener struct {
	cfg     Config
	socket  net.Listener
	ctx     context.Context // ends with the listener
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	live    []*Request // that have a place, the oldest first
	waiting []*Request // that wait for a place, the next one first
	queue   []*Request // for Take
	lobby   lobby      // of those that have no place
}

// Listen listens. network is "tcp", whose address without a host is loopback, or "unix",
// where a name that begins with @ is abstract. A socket file is removed by Close, and is
// for other users only with AllowUIDs. One that a killed process of the same user has left is
// replaced. Errors: ErrInvalidParam, those of package net.
func Listen(ctx context.Context, network, address string, cfg Config) (*Listener, error) {
	socket, err := listen(ctx, network, address, len(cfg.AllowUIDs) > 0)
	if err != nil {
		return nil, err
	}
	return ListenOn(socket, cfg), nil
}

// ListenOn is Listen with a socket that is open: a *net.TCPListener or *net.UnixListener, which the Listener
// owns from then on.
func ListenOn(socket net.Listener, cfg Config) *Listener {
	cfg.MaxHandshakes = cmp.Or(cfg.MaxHandshakes, DefaultMaxHandshakes)
	cfg.MaxPerSource = cmp.Or(cfg.MaxPerSource, (cfg.MaxHandshakes+1)/2)
	cfg.HelloTimeout = cmp.Or(cfg.HelloTimeout, DefaultHelloTimeout)
	l := &Listener{cfg: cfg, socket: socket, lobby: newLobby(cfg.MaxHandshakes)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.running.Go(l.acceptLoop)
	return l
}

// Detach is Drain that returns the socket for another listener, and does not remove a socket file. Connections wait
// in it. It must not be used by two processes at once: who passes its descriptor on, as package os/exec does, makes
// calls of Accept block that cannot be interrupted.
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

// Drain accepts no more connections. served is closed, and Notify called, when the connections that were accepted have been
// served. Their worker must make progress for that, and Close cuts it short.
func (l *Listener) Drain() (served <-chan struct{}) {
	over := make(chan struct{})
	_ = l.socket.Close() // an error says that it is closed
	go func() {
		l.running.Wait()
		close(over)
		l.cfg.Notify()
	}()
	return over
}

// listen makes the socket.
func listen(ctx context.Context, network, address string, public bool) (net.Listener, error) {
	if err := checkAddress(network, address); err != nil {
		return nil, err
	}
	switch {
	case network == "unix" && address == "": // package net would choose a name that nobody knows
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
	if host == "" { // package net would listen to the whole world
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return new(net.ListenConfig).Listen(ctx, network, address)
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.socket.Addr() }

// Local is the address that it listens on; the zero AddrPort over a unix socket.
func (l *Listener) Local() netip.AddrPort { return addrOf(l.Addr()) }

// Close hangs up on every connection and waits for the goroutines, which takes no longer
// than their being scheduled. Idempotent.
func (l *Listener) Close() error {
	l.stop()
	err := l.socket.Close()
	l.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Take returns the requests of which there is news since the last call: those that wait for
// an answer, and those answered ones whose dialers have gone; see [Request.Gone].
func (l *Listener) Take() []*Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.queue
	l.queue = nil
	return news
}

// Pauses of the accept loop when the process is out of descriptors.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// acceptLoop takes connections until the socket is closed.
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

// admit serves a connection, unless its user is not permitted or too many others wait.
func (l *Listener) admit(conn net.Conn) {
	from, err := identify(conn)
	if err != nil || !from.permitted(l.cfg.AllowUIDs) {
		l.cfg.Stats.count(&l.cfg.Stats.foreign)
		refuse(conn, CodeForeignUser)
		_ = conn.Close()
		return
	}
	r := newRequest(l, conn, from)
	if !l.enterLobby(r, time.Now()) {
		l.cfg.Stats.count(&l.cfg.Stats.evicted)
		if r.answerable() {
			refuse(conn, CodeTooMany)
		}
		r.cancel()
		_ = conn.Close()
		return
	}
	l.running.Go(r.serve)
}

// put enters a request for Take.
func (l *Listener) put(r *Request) {
	l.mu.Lock()
	l.queue = append(l.queue, r)
	l.mu.Unlock()
	l.cfg.Notify()
}
