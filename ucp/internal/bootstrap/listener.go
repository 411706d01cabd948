package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Bounds of what untrusted dialers may make a listener keep, and for how long.
const (
	defaultMaxHandshakes = 64              // as many as uct/tcp has
	defaultHelloTimeout  = 5 * time.Second // a live process on an overloaded machine took more than 1 s
	// fullTimeout is how long a HELLO may take while others wait for a place: what is
	// honest has sent it along with the connection.
	fullTimeout = time.Second
)

// Config configures a [Listener]. The zero value is the default, but for Notify and Stats.
type Config struct {
	AllowUIDs     []uint32      // unix: users beside the effective one that may connect
	MaxHandshakes int           // connections at a time; 0 means 64
	HelloTimeout  time.Duration // for a HELLO; 0 means 5 s
	TLS           TLSConfigs    // demanded of tcp dialers; nil means no TLS
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

	unauthenticated stats.Counter
}

// AddTo adds the counters to a tree.
func (s *Stats) AddTo(n *stats.Node) {
	n.Add("foreign_users", &s.foreign)
	n.Add("malformed_hellos", &s.malformed)
	n.Add("silent_dialers", &s.silent)
	n.Add("rejected", &s.rejected)
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
	slots   chan struct{} // one for each connection that is dealt with

	mu     sync.Mutex
	silent map[*Request]struct{} // those whose HELLO is not complete
	queue  []*Request            // for Take
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
	if cfg.MaxHandshakes == 0 {
		cfg.MaxHandshakes = defaultMaxHandshakes
	}
	if cfg.HelloTimeout == 0 {
		cfg.HelloTimeout = defaultHelloTimeout
	}
	l := &Listener{cfg: cfg, socket: socket, slots: make(chan struct{}, cfg.MaxHandshakes), silent: map[*Request]struct{}{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.running.Go(l.acceptLoop)
	return l, nil
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

// acceptLoop takes connections until the listener is closed.
func (l *Listener) acceptLoop() {
	pause := acceptPauseMin
	for l.ctx.Err() == nil {
		conn, err := l.socket.Accept()
		if err != nil {
			sleep(l.ctx, pause)
			pause = min(2*pause, acceptPauseMax)
			continue
		}
		pause = acceptPauseMin
		l.admit(conn)
	}
}

// admit begins with a connection as soon as there is a slot. Other users never take one.
func (l *Listener) admit(conn net.Conn) {
	from, err := identify(conn)
	if err != nil || !from.permitted(l.cfg.AllowUIDs) {
		l.cfg.Stats.count(&l.cfg.Stats.foreign)
		refuse(conn, CodeForeignUser)
		_ = conn.Close()
		return
	}
	if !l.takeSlot() {
		_ = conn.Close()
		return
	}
	r := newRequest(l, conn, from)
	l.enter(r)
	l.running.Go(func() {
		r.serve()
		<-l.slots
	})
}

// enter gives a connection its time for the HELLO, which shortenHellos lessens.
func (l *Listener) enter(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = r.conn.SetDeadline(r.since.Add(l.cfg.HelloTimeout))
	l.silent[r] = struct{}{}
}

// hangUp ends the reading of a HELLO.
func (l *Listener) hangUp(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.silent, r)
	_ = r.conn.SetDeadline(past)
}

// takeSlot waits for a slot, and gives those who are silent less time; false if the listener is
// closed meanwhile.
func (l *Listener) takeSlot() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.shortenHellos()
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// shortenHellos gives those whose HELLO is not complete less time for it.
func (l *Listener) shortenHellos() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.silent {
		_ = r.conn.SetReadDeadline(r.since.Add(min(fullTimeout, l.cfg.HelloTimeout)))
	}
}

// put enters a request for Take.
func (l *Listener) put(r *Request) {
	l.mu.Lock()
	l.queue = append(l.queue, r)
	l.mu.Unlock()
	l.cfg.Notify()
}
