package attach

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
)

// Port is a process's presence on the host: a name that peers dial, and the place
// to dial them from. Methods may be called from any goroutine.
type Port struct {
	cfg      Config
	listener *net.UnixListener
	ctx      context.Context // canceled by Close
	cancel   context.CancelFunc
	slots    chan struct{} // one element for each inbound handshake under way
	count    counters

	mu      sync.Mutex
	closed  bool
	links   map[*Link]struct{} // not closed yet
	inbound int                // of them and of handshakes, counted against MaxLinks
	wg      sync.WaitGroup     // Add under mu and only while not closed
}

// counters are the port's statistics.
type counters struct {
	accepted, foreign, garbage, timeout, refused atomic.Uint64
}

// Stats is a snapshot of what inbound connections came to. Each is counted once.
type Stats struct {
	Accepted uint64 // links made
	Foreign  uint64 // closed: another user
	Garbage  uint64 // closed: message malformed, or hung up before a message was complete
	TimedOut uint64 // closed: said nothing within HandshakeTimeout
	Refused  uint64 // answered with a refusal
}

// Listen opens a port: from now on peers may dial it, and OnLink may be called.
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

// Close stops listening, ends dials under way, closes all links and waits for the
// port's goroutines, so for OnLink and AfterDown functions too; not links after
// Link.HangUp. Nobody may use segments of the links that it closes any more. Idempotent.
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

// enter registers a goroutine that Close must wait for; false when the port is
// closed. The caller calls p.wg.Done when it returns true.
func (p *Port) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Add(1)
	return true
}

// spawn runs f on a goroutine that Close waits for; false when the port is closed.
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

// adopt makes a link one that Close closes, unless its owner has hung up already. On
// error the link is the caller's to close.
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

// disown makes a link one that Close leaves alone. It still counts against MaxLinks.
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

// reserve counts an inbound link against MaxLinks; false when there is no room.
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
