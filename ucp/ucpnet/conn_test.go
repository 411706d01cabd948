package ucpnet

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"
	"golang.org/x/net/nettest"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// sets are the sets of transports for tests.
var sets = []string{"self", "sm", "tcp", `\rc`}

func overAll(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, tls := range sets {
		t.Run(tls, func(t *testing.T) { f(t, newPair(t, tls)) })
	}
}

// pair is a listener and a worker that dials it; over self, one worker does both.
type pair struct {
	t    testing.TB
	a, b *ucp.SharedWorker
	l    *Listener

	accepted chan net.Conn
}

func newPair(t testing.TB, tls string) *pair {
	t.Helper()
	p := &pair{t: t, b: newWorker(t, tls), accepted: make(chan net.Conn)}
	if p.a = p.b; tls != "self" {
		p.a = newWorker(t, tls)
	}
	var err error
	p.l, err = Listen(t.Context(), p.b, "unix", freshName())
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.accept()
	}()
	t.Cleanup(func() {
		assert.NoError(t, p.l.Close())
		<-ended
	})
	return p
}

// accept accepts connections until the listener is closed, as servers do.
func (p *pair) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			assert.ErrorIs(p.t, err, net.ErrClosed)
			return
		}
		p.accepted <- c
	}
}

var names uatomic.Int64

// freshName is an abstract name that no other test has.
func freshName() string { return fmt.Sprintf("@gucx-ucpnet-%d-%d", os.Getpid(), names.Inc()) }

func newWorker(t testing.TB, tls string) *ucp.SharedWorker {
	t.Helper()
	return newWorkerOver(t, tls, all.Components())
}

func newWorkerOver(t testing.TB, tls string, components []uct.Component) *ucp.SharedWorker {
	t.Helper()
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow(tls)}, components...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	shared := w.Share()
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	return shared
}

// connect returns both ends of a new connection; the dialer's first.
func (p *pair) connect() (a, b net.Conn) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
	defer cancel()
	dialed := make(chan error, 1)
	go func() {
		var err error
		a, err = Dial(ctx, p.a, "unix", p.l.Addr().String())
		dialed <- err
	}()
	select {
	case b = <-p.accepted:
	case <-ctx.Done():
	}
	require.NoError(p.t, <-dialed)
	return a, b
}

func TestConn(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		pipe := func() (c1, c2 net.Conn, stop func(), err error) {
			c1, c2 = p.connect()
			return c1, c2, func() { closeBoth(c1, c2) }, nil
		}
		t.Run("calls", func(t *testing.T) { nettest.TestConn(t, pipe) })
		t.Run("served", func(t *testing.T) {
			p.serve(t)
			nettest.TestConn(t, pipe)
		})
	})
}

// serve starts a goroutine that makes progress for the dialing worker until the test ends.
func (p *pair) serve(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.a.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.ErrorIs(t, <-served, context.Canceled)
	})
}

// closeBoth closes both ends at the same time: each makes progress for the other.
func closeBoth(a, b net.Conn) {
	var both sync.WaitGroup
	for _, c := range []net.Conn{a, b} {
		both.Go(func() { _ = c.Close() }) // c may be closed already
	}
	both.Wait()
}
