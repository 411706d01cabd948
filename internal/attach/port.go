package attach

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
)

// Port listens under a name that peers dial, and dials other ports. Any goroutine may call its methods.
type Port struct {
	cfg      Config
	listener *net.UnixListener
	ctx      context.Context // canceled by Close
	cancel   context.CancelFunc
	slots    chan struct{} // one element for each inbound handshake in progress
	count    counters

	mu      sync.Mutex
	closed  bool
	links   map[*Link]struct{} // links that Close closes
	inbound int                // number of inbound links and handshakes, limited by MaxLinks
	wg      sync.WaitGroup     // Add under mu and only while not closed
}

// counters are the port's statistics.
type counters struct {
	accepted, foreign, garbage, timeout, refused atomic.Uint64
}

// Stats counts inbound connections by result. Each connection counts once.
type Stats struct {
	Accepted uint64 // links made
	Foreign  uint64 // closed: another user
	Garbage  uint64 // closed: the message was malformed or incomplete
	TimedOut uint64 // closed: no message within HandshakeTimeout
	Refused  uint64 // replied to with a refusal
}

// Listen opens a port. Peers can dial it, and OnLink may be called before Listen has returned.
//
// Errors: ucs.ErrInvalidParam (configuration), ucs.ErrBusy (the GID is in use),
// system call errors.
func Listen(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := cfg.listen()
	if err != nil {
		return nil, listenError(cfg.Service, err)
	}
	p := &Port{cfg: cfg, listener: l, slots: make(chan struct{}, cfg.MaxHandshakes), links: map[*Link]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.spawn(p.acceptLoop)
	p.listLocal()
	return p, nil
}

// Stats returns the counters.
func (p *Port) Stats() Stats {
	return Stats{
		Accepted: p.count.accepted.Load(),
		Foreign:  p.count.foreign.Load(),
		Garbage:  p.count.garbage.Load(),
		TimedOut: p.count.timeout.Load(),
		Refused:  p.count.refused.Load(),
	}
}

// Close stops listening, cancels dials in progress, closes all links except those after Link.HangUp, and
// waits for the goroutines of the port, which also run OnLink and functions of AfterDown. The caller must not use segments
// of closed links afterwards. Idempotent.
func (p *Port) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()

	var errs []error
	if first {
		p.unlistLocal()
		p.cancel()
		errs = append(errs, p.listener.Close())
	}
	for _, l := range p.allLinks() {
		errs = append(errs, l.Close())
	}
	p.wg.Wait()
	return errors.Join(errs...)
}

func (p *Port) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *Port) allLinks() []*Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

// enter makes Close wait for a call of p.wg.Done, which the caller must make. It returns false, and does nothing, if the
// port is closed.
func (p *Port) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Add(1)
	return true
}

// spawn runs f on a goroutine that Close waits for; false if the port is closed.
func (p *Port) spawn(f func()) bool {
	if !p.enter() {
		return false
	}
	go func() {
		defer p.wg.Done()
		f()
	}()
	return true
}

// adopt makes Close close the link, unless Link.HangUp was called. After an error the caller must close the link.
func (p *Port) adopt(l *Link) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.isAlone() {
		return nil
	}
	if p.closed || l.isClosed() {
		return ucs.ErrClosed
	}
	p.links[l] = struct{}{}
	return nil
}

// disown makes Close ignore the link, which still counts against MaxLinks.
func (p *Port) disown(l *Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Port) forget(l *Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	if l.counted {
		l.counted = false
		p.inbound--
	}
}

// reserve counts an inbound link against MaxLinks; false if the limit is reached.
func (p *Port) reserve(l *Link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbound >= p.cfg.MaxLinks {
		return false
	}
	p.inbound++
	l.counted = true
	return true
}
