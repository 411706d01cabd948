package ucprpc

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
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
	shut             context.CancelFunc
	running          sync.WaitGroup // goroutines of links
}

// link is a connection of a client. Its goroutine replaces the connection when it has failed.
type link struct {
	cl    *Client
	state atomic.Pointer[linkState]
	err   error // of closing the last connection
}

// linkState is the latest connection of a link.
type linkState struct {
	p        *Peer
	failed   error         // of the latest attempt to replace it
	replaced chan struct{} // closed when there is another state
}

// Dial connects to a server. If ctx is done first, it returns the error of ctx. For network, address and errors see
// [ucp.Worker.Dial]; the first attempt must succeed.
func Dial(ctx context.Context, c *ucp.Context, network, address string, cfg ClientConfig) (*Client, error) {
	cl := &Client{cfg: cfg, network: network, address: address}
	if err := cl.node.init(c, cfg.Limits, &cfg.Handlers); err != nil {
		return nil, err
	}
	cl.closed = &loopStats{}
	cl.closed.addTo(cl.stats.Child("closed"))
	cl.cfg.WaitConnected = cmp.Or(cfg.WaitConnected, 10*time.Second)
	cl.cfg.MinBackoff, cl.cfg.MaxBackoff = cmp.Or(cfg.MinBackoff, 10*time.Millisecond), cmp.Or(cfg.MaxBackoff, 5*time.Second)
	cl.open, cl.shut = context.WithCancel(context.Background())
	for range max(cfg.Workers, 1) {
		p, err := cl.connect(ctx)
		if err != nil {
			return nil, ucs.Join(err, cl.Close())
		}
		k := &link{cl: cl}
		k.set(p, nil)
		cl.links = append(cl.links, k)
		cl.running.Go(k.run)
	}
	return cl, nil
}

// connect connects to the server with a new worker.
func (cl *Client) connect(ctx context.Context) (p *Peer, err error) {
	l, err := cl.newLoop(cl.cfg.Worker)
	if err != nil {
		return nil, err
	}
	l.acquire() // Dial drives
	l.connects = true
	up, err := l.w.Dial(ctx, cl.network, cl.address, ucp.DialConfig{
		Private: []byte(hello), AllowUIDs: cl.cfg.AllowUIDs, EP: ucp.EPConfig{OnError: l.dropPeerLater},
	})
	l.connects = false
	switch {
	case err != nil:
	case string(up.Private) != hello:
		err = &Error{Code: CodeUnavailable, Text: "the listener speaks another protocol"}
	default:
		if err = up.EP.Err(); err == nil { // otherwise a message of the server was invalid
			p = l.addPeer(up.EP)
		}
	}
	l.release()
	if err != nil {
		err = ucs.Join(err, l.closeWorker())
		cl.running.Go(l.running.Wait) // a goroutine, because handlers may wait for the next connection
		return nil, err
	}
	l.running.Go(l.serve)
	return p, nil
}

// set sets the state of the link.
func (k *link) set(p *Peer, failed error) {
	if old := k.state.Swap(&linkState{p, failed, make(chan struct{})}); old != nil {
		close(old.replaced)
	}
}

// run replaces the connection when it has failed or its server shuts down, until the client is closed.
func (k *link) run() {
	cl := k.cl
	for pause := time.Duration(0); ; {
		p, since := k.state.Load().p, time.Now()
		select {
		case <-p.usable.Done():
		case <-cl.open.Done():
			k.err = p.l.close()
			return
		}
		drains, lived := context.Cause(p.usable) == errDraining, time.Since(since)
		cl.running.Go(func() { // a goroutine: close waits for handlers, which may wait for the next connection
			if drains { // calls in progress continue
				p.l.awaitQuiet(cl.open)
			}
			_ = p.l.close() // the error is that of the failed connection
		})
		if lived >= cl.cfg.MaxBackoff || drains && lived >= cl.cfg.MinBackoff {
			pause = 0
		} else {
			pause = cl.nextPause(pause)
		}
		pause = k.reconnect(p, pause)
	}
}

// reconnect tries to replace connection p until it succeeds or the client is closed. It returns the pause before the last
// attempt; pause is that before the first.
func (k *link) reconnect(p *Peer, pause time.Duration) time.Duration {
	for ; ; pause = k.cl.nextPause(pause) {
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-k.cl.open.Done():
			return pause
		}
		next, err := k.cl.connect(k.cl.open)
		k.set(cmp.Or(next, p), err)
		if err == nil {
			return pause
		}
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
		s := k.state.Load()
		switch {
		case k.cl.open.Err() != nil:
			return nil, disconnected
		case s.p.usable.Err() == nil:
			return s.p, nil
		case limit == nil && k.cl.cfg.WaitConnected > 0:
			limit = time.After(k.cl.cfg.WaitConnected)
		}
		select {
		case <-s.replaced:
		case <-k.cl.open.Done():
		case <-ctx.Done():
			return nil, &Error{Code: CodeOf(ctx.Err()), Err: s.failed}
		case <-limit:
			return nil, &Error{Code: CodeUnavailable, Err: s.failed}
		}
	}
}

// do calls f with the connection, and again with the next one while the operation must be repeated.
func (k *link) do(ctx context.Context, idempotent bool, f func(p *Peer) error) error {
	for {
		p, err := k.connected(ctx)
		if err != nil {
			return err
		}
		if err = f(p); err == nil || k.cl.open.Err() != nil || !p.mustRepeat(err, idempotent) {
			return err
		}
	}
}

// mustRepeat reports whether an operation that has failed over p must be repeated over the next connection.
func (p *Peer) mustRepeat(err error, idempotent bool) bool {
	var e *Error
	if p.usable.Err() == nil || !errors.As(err, &e) {
		return false
	}
	return e.Code == CodeDraining || e.Err != nil && (e.Code == CodeUnavailable || e.Code == CodeLost && idempotent)
}

// link returns the link for the next operation.
func (cl *Client) link() *link {
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
	return cl.execute(ctx, operation{op: opCall, method: m, data: request, buf: buf})
}

// Send sends a one-way message, which has no reply. When Send has returned, it does not use data. It does not report
// whether a handler has run. The server drops the message if a limit is reached.
func (cl *Client) Send(ctx context.Context, m Method, data []byte) error {
	_, err := cl.execute(ctx, operation{op: opOneWay, method: m, data: data})
	return err
}

func (cl *Client) execute(ctx context.Context, o operation) (reply []byte, err error) {
	err = cl.link().do(ctx, o.method.Idempotent, func(p *Peer) (err error) {
		reply, err = p.execute(ctx, o)
		return err
	})
	return reply, err
}

// Close closes the client. Operations in progress fail with CodeLost. Close waits until all handlers have returned, so
// no handler may call it.
func (cl *Client) Close() error {
	cl.shut()
	cl.running.Wait()
	var errs []error
	for _, k := range cl.links {
		errs = append(errs, k.err)
	}
	return errors.Join(errs...)
}
