package ucprpc

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// ClientConfig configures a Client. The zero value is the default.
type ClientConfig struct {
	// Handlers handle requests of the server: see [Peer.Call].
	Handlers Handlers
	Limits   Limits
	// Workers is the number of workers that share the calls, each with a connection; 0 means 1.
	Workers int
	// Worker configures the workers.
	Worker ucp.WorkerConfig
	// WaitConnected is the time that an operation waits for a connection before it fails with CodeUnavailable. 0 means
	// 10 s, a negative value means as long as the context of the call permits.
	WaitConnected time.Duration
	// MinBackoff and MaxBackoff limit the pause between attempts to connect. The pause doubles with each attempt, and
	// its upper half is random. A connection that failed within MaxBackoff, or whose server shut down within MinBackoff,
	// counts as a failed attempt. After any other connection there is no pause. 0 means 10 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// AllowUIDs is as in [ucp.DialConfig].
	AllowUIDs []uint32
}

// Client calls a server. It connects again when a connection has failed. All methods may be called by any goroutine,
// but not by a handler that runs inline.
type Client struct {
	node
	cfg              ClientConfig
	network, address string
	links            []*link
	next             atomic.Uint32 // the link of the next call
	open             context.Context
	shut             context.CancelCauseFunc
	closing          sync.WaitGroup // goroutines of links
}

// link is a connection of a client. After a failure a new connection replaces it.
type link struct {
	cl    *Client
	state atomic.Pointer[linkState]
}

// linkState is a connection, or the lack of one.
type linkState struct {
	p      *Peer         // nil if there is none
	since  time.Time     // time at which it was made
	pause  time.Duration // pause before it was made
	failed atomic.Value  // the error of the latest attempt to connect, as a lastError
	over   chan struct{} // closed when another state has replaced this one
}

type lastError struct{ err error }

// Dial connects to a server. If ctx is done first, it returns the error of ctx. For network, address and errors see
// [ucp.Worker.Dial]; the first attempt must succeed.
func Dial(ctx context.Context, c *ucp.Context, network, address string, cfg ClientConfig) (*Client, error) {
	cl := &Client{cfg: cfg, network: network, address: address, node: node{
		c: c, cfg: cfg.Limits, handlers: Handlers{maps.Clone(cfg.Handlers.byMethod)}, stats: stats.New("ucprpc"),
		onGone: func(p *Peer, err error) { p.link.replace(p, true) },
	}}
	if err := cl.node.cfg.setDefaults(); err != nil {
		return nil, err
	}
	cl.closed = &loopStats{}
	cl.closed.addTo(cl.stats.Child("closed"))
	cl.cfg.WaitConnected = cmp.Or(cfg.WaitConnected, 10*time.Second)
	cl.cfg.MinBackoff, cl.cfg.MaxBackoff = cmp.Or(cfg.MinBackoff, 10*time.Millisecond), cmp.Or(cfg.MaxBackoff, 5*time.Second)
	cl.open, cl.shut = context.WithCancelCause(context.Background())
	for range max(cfg.Workers, 1) {
		k := &link{cl: cl}
		k.state.Store(&linkState{over: make(chan struct{})})
		if err := k.connect(ctx, 0); err != nil {
			return nil, ucs.Join(err, cl.Close())
		}
		cl.links = append(cl.links, k)
	}
	return cl, nil
}

// connect connects to the server with a new worker. pause is the pause before this attempt.
func (k *link) connect(ctx context.Context, pause time.Duration) error {
	cl := k.cl
	l, err := cl.newLoop(cl.cfg.Worker)
	if err != nil {
		return err
	}
	l.connects = true
	var p *Peer
	up, err := l.w.Dial(ctx, cl.network, cl.address, ucp.DialConfig{Private: []byte(hello), AllowUIDs: cl.cfg.AllowUIDs, EP: ucp.EPConfig{
		OnError: func(_ *ucp.EP, err error) {
			if p != nil {
				l.dropLater(p, err)
			}
		},
	}})
	switch {
	case err != nil:
	case string(up.Private) != hello:
		err = &Error{Code: CodeUnavailable, Text: "the listener speaks another protocol"}
	default:
		if err = up.EP.Err(); err == nil { // otherwise OnError may have been called already
			p = l.add(up.EP, up.From)
		}
	}
	l.connects = false
	if p == nil {
		l.releaseEarly()
		return ucs.Join(err, l.close(disconnected))
	}
	p.link = k
	p.onDrain = func(p *Peer) { k.replace(p, false) }
	l.acquire() // until the early messages are handled, before later ones

	// Before the connection can fail.
	old := k.state.Swap(&linkState{p: p, since: time.Now(), pause: pause, over: make(chan struct{})})
	close(old.over)
	l.running.Go(l.serve)
	for _, m := range l.early {
		l.handle(m)
	}
	l.releaseEarly()
	l.release()
	return nil
}

// replace closes the loop of a connection that has failed or whose server drains, and connects again, both in
// goroutines. The driver of that loop calls it. A second call has no effect.
func (k *link) replace(p *Peer, gone bool) {
	k.cl.mu.Lock() // Close waits only for goroutines that were started before it
	defer k.cl.mu.Unlock()
	old := k.state.Load()
	if old.p != p || k.cl.open.Err() != nil || !k.state.CompareAndSwap(old, &linkState{over: make(chan struct{})}) {
		return
	}
	close(old.over)
	pause, lived := time.Duration(0), time.Since(old.since)
	if gone && lived < k.cl.cfg.MaxBackoff || lived < k.cl.cfg.MinBackoff {
		pause = k.cl.nextPause(old.pause)
	}
	k.cl.closing.Go(func() { // a goroutine: close waits for handlers, which may wait for the next connection
		if !gone { // calls in progress continue
			p.l.drain(k.cl.open)
		}
		_ = p.l.close(disconnected) // the error is that of the failed connection
	})
	k.cl.closing.Go(func() { k.reconnect(pause) })
}

// reconnect tries to connect, after the given pause, until it succeeds or the client is closed.
func (k *link) reconnect(pause time.Duration) {
	cl := k.cl
	for ; cl.open.Err() == nil; pause = cl.nextPause(pause) {
		if pause > 0 {
			select {
			case <-time.After(pause/2 + rand.N(pause/2+1)):
			case <-cl.open.Done():
				return
			}
		}
		err := k.connect(cl.open, pause)
		if err == nil {
			return
		}
		k.state.Load().failed.Store(lastError{err})
	}
}

// nextPause returns the pause after a failed attempt that followed the given pause.
func (cl *Client) nextPause(pause time.Duration) time.Duration {
	return min(max(2*pause, cl.cfg.MinBackoff), cl.cfg.MaxBackoff)
}

// connected returns the connection, and waits if there is none.
func (k *link) connected(ctx context.Context) (*Peer, error) {
	var limit <-chan time.Time
	for {
		if k.cl.open.Err() != nil {
			return nil, disconnected
		}
		s := k.state.Load()
		if s.p != nil {
			return s.p, nil
		}
		if limit == nil && k.cl.cfg.WaitConnected > 0 {
			t := time.NewTimer(k.cl.cfg.WaitConnected)
			defer t.Stop()
			limit = t.C
		}
		why := func(code Code) error {
			last, _ := s.failed.Load().(lastError)
			return &Error{Code: code, Err: last.err}
		}
		select {
		case <-s.over:
		case <-ctx.Done():
			return nil, why(CodeOf(ctx.Err()))
		case <-limit:
			return nil, why(CodeUnavailable)
		case <-k.cl.open.Done():
			return nil, disconnected
		}
	}
}

// link returns the link for the next operation.
func (cl *Client) link() *link {
	if len(cl.links) == 1 {
		return cl.links[0]
	}
	return cl.links[cl.next.Add(1)%uint32(len(cl.links))]
}

// Call sends a request and returns the reply: in buf if its capacity suffices, otherwise in new memory. After Call has
// returned, it does not use request and buf. If ctx is done first, the context of the handler is canceled, and the
// call fails with CodeCanceled or CodeDeadline; a large request or reply in transfer may delay the return by up to
// ucs.RevokeLimit, after which the connection is closed.
//
// A request that was not sent because the connection had failed, or that a draining server has rejected, is sent
// again over the next connection. A request that may have run fails with CodeLost, unless m is idempotent.
//
// Errors: an *Error, whose Code is the handler's or one of this package.
func (cl *Client) Call(ctx context.Context, m Method, request, buf []byte) (reply []byte, err error) {
	return cl.send(ctx, opCall, m, request, buf)
}

// Send sends a one-way message, which has no reply. When Send has returned, it does not use data. It does not report
// whether a handler has run. The server drops the message if a limit is reached.
func (cl *Client) Send(ctx context.Context, m Method, data []byte) error {
	_, err := cl.send(ctx, opOneWay, m, data, nil)
	return err
}

func (cl *Client) send(ctx context.Context, op opType, m Method, data, buf []byte) (reply []byte, err error) {
	k := cl.link()
	for {
		p, err := k.connected(ctx)
		if err != nil {
			return nil, err
		}
		reply, err = p.send(ctx, op, m, data, buf)
		if err == nil || !k.shouldRepeat(p, err, m.Idempotent) {
			return reply, err
		}
	}
}

// shouldRepeat reports whether an operation that has failed over p must be repeated.
func (k *link) shouldRepeat(p *Peer, err error, idempotent bool) bool {
	var e *Error
	if k.cl.open.Err() != nil || !errors.As(err, &e) || e.Err == nil && e.Code != CodeDraining {
		return false
	}
	switch e.Code {
	case CodeDraining:
		k.replace(p, false)
		return true
	case CodeUnavailable:
		return k.state.Load().p != p
	case CodeLost:
		return idempotent && k.state.Load().p != p
	}
	return false
}

// Stats returns the root of a tree of counters, with one node for each connection, and the node
// "closed" with the sums of the connections that are closed.
func (cl *Client) Stats() *stats.Node { return cl.stats }

// Close closes the client. Operations in progress fail with CodeLost. Close waits until all handlers have returned, so
// no handler may call it.
func (cl *Client) Close() error {
	cl.mu.Lock()
	cl.shut(disconnected)
	cl.mu.Unlock()
	var errs []error
	for _, k := range cl.links {
		if p := k.state.Load().p; p != nil {
			errs = append(errs, p.l.close(disconnected))
		}
	}
	cl.closing.Wait()
	for _, k := range cl.links { // connections that were made in the meantime
		if p := k.state.Load().p; p != nil {
			errs = append(errs, p.l.close(disconnected))
		}
	}
	return errors.Join(errs...)
}
