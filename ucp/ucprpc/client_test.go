package ucprpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// TestClient_Reconnects: when a server was killed, a client calls the next server at the address. Calls in progress fail
// with CodeLost, except those of idempotent methods.
func TestClient_Reconnects(t *testing.T) {
	for _, tls := range []string{"sm", "tcp"} {
		t.Run(tls, func(t *testing.T) {
			address := freshName()
			server := startServer(t, tls, address)
			cl := dial(t, newContext(t, tls), address, ClientConfig{WaitConnected: -1})
			_, err := cl.Call(t.Context(), methodEcho, nil, nil)
			require.NoError(t, err)

			failed, repeated := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := cl.Call(t.Context(), methodWait, nil, nil)
				failed <- err
			}()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, err := cl.Call(ctx, Method{Name: methodWait.Name, Idempotent: true}, nil, nil)
				repeated <- err
			}()
			active := func() (n int) {
				l := cl.links[0].state.Load().p.l
				l.runOnLoop(func() { n = l.active })
				return n
			}
			eventually(t, func() bool { return active() == 2 })
			server.Kill(t)
			require.Equal(t, CodeLost, CodeOf(<-failed))

			startServer(t, tls, address)
			got, err := cl.Call(t.Context(), methodEcho, []byte("again"), nil) // waits for the connection
			require.NoError(t, err)
			require.Equal(t, "again", string(got))
			eventually(t, func() bool { return active() == 1 })
			cancel()
			require.Equal(t, CodeCanceled, CodeOf(<-repeated))
		})
	}
}

// TestClient_NotConnected: without a server, calls fail in the given time, with the reason.
func TestClient_NotConnected(t *testing.T) {
	c := newContext(t, "sm")
	s := listen(t, c, freshName(), testServer())
	cl := dial(t, c, s.Addr().String(), ClientConfig{WaitConnected: time.Millisecond, MinBackoff: time.Millisecond})
	require.NoError(t, s.Close())
	eventually(t, func() bool {
		_, err := cl.Call(t.Context(), methodEcho, nil, nil)
		return CodeOf(err) == CodeUnavailable && errors.Is(err, ucs.ErrUnreachable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := cl.Call(ctx, methodEcho, nil, nil)
	require.Error(t, err)
	require.NoError(t, cl.Close())
	_, err = cl.Call(t.Context(), methodEcho, nil, nil)
	require.Equal(t, CodeClosed, CodeOf(err))
}

// TestClient_Closed: calls of a client that is closed fail with CodeClosed.
func TestClient_Closed(t *testing.T) {
	_, cl := newPair(t, "sm", testServer())
	m, err := cl.Open(t.Context(), "none")
	require.Nil(t, m)
	require.Equal(t, CodeNoMemory, CodeOf(err))
	require.NoError(t, cl.Close())
	_, err = cl.Call(t.Context(), methodEcho, nil, nil)
	require.Equal(t, CodeClosed, CodeOf(err))
	require.ErrorIs(t, err, ucs.ErrClosed)
	_, err = cl.Open(t.Context(), "none")
	require.Equal(t, CodeClosed, CodeOf(err))
}

// TestServer_Shutdown: a server that shuts down replies to the requests that it has accepted. Clients repeat the
// rejected ones at the next server.
func TestServer_Shutdown(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c, address := newContext(t, tls), freshName()
		var runs uatomic.Int64
		config := func() (cfg ServerConfig) {
			cfg.Handlers.Handle(methodEcho, HandlerConfig{}, func(c *Call) error {
				runs.Inc()
				return echo(c)
			})
			return cfg
		}
		s := listen(t, c, address, config())
		cl := dial(t, c, address, ClientConfig{MinBackoff: time.Millisecond})
		const callers, calls = 4, 200
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range calls {
					if _, err := cl.Call(t.Context(), methodEcho, []byte("x"), nil); !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		for range 5 {
			n := runs.Load()
			eventually(t, func() bool { return runs.Load() >= min(n+callers, callers*calls) })
			require.NoError(t, s.Shutdown(t.Context()))
			s = listen(t, c, address, config())
		}
		all.Wait()
		require.EqualValues(t, callers*calls, runs.Load()) // each ran once
	})
}

// TestServer_Workers: dialers are distributed over the workers.
func TestServer_Workers(t *testing.T) {
	c := newContext(t, "sm,tcp")
	for _, network := range []string{"unix", "tcp"} {
		address := freshName()
		if network == "tcp" {
			address = "127.0.0.1:0"
		}
		cfg := testServer()
		cfg.Workers = 3
		s, err := Listen(t.Context(), c, network, address, cfg)
		require.NoError(t, err)
		cl, err := Dial(t.Context(), c, network, s.Addr().String(), ClientConfig{Workers: 6})
		require.NoError(t, err)
		for _, l := range s.loops {
			assert.EqualValues(t, 2, l.connected.Load(), network)
			assert.Equal(t, s.Addr(), l.listener.Addr())
		}
		for range 12 {
			_, err := cl.Call(t.Context(), methodInline, nil, nil)
			require.NoError(t, err)
		}
		for _, l := range s.loops {
			assert.EqualValues(t, 4, l.stats[0].Load(), network)
		}
		require.NoError(t, cl.Close())
		require.NoError(t, s.Close())
	}
}

// TestPeer_Call: a server calls its client, and sends it one-way messages.
func TestPeer_Call(t *testing.T) {
	c := newContext(t, "sm")
	peers := make(chan *Peer, 1)
	s := listen(t, c, freshName(), ServerConfig{OnPeer: func(p *Peer) { peers <- p }})
	var cfg ClientConfig
	cfg.Handlers.Handle(methodEcho, HandlerConfig{}, echo)
	came := make(chan string, 1)
	cfg.Handlers.Handle(methodInline, HandlerConfig{Inline: true}, func(c *Call) error {
		came <- string(c.Data)
		return nil
	})
	dial(t, c, s.Addr().String(), cfg)
	p := <-peers
	require.NoError(t, p.Send(t.Context(), methodInline, []byte("notice")))
	require.Equal(t, "notice", <-came)
	got, err := p.Call(t.Context(), methodEcho, []byte("x"), nil)
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
	require.NotZero(t, p.Identity().PID)
}

// TestMemory: put and get of published memory, also after the client has connected to the next server.
func TestMemory(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c, address := newContext(t, tls), freshName()
		mem, err := c.MemAlloc(4096)
		require.NoError(t, err)
		defer mem.Close()
		s := listen(t, c, address, testServer())
		require.NoError(t, s.Publish("board", mem))
		cl := dial(t, c, address, ClientConfig{})
		_, err = cl.Open(t.Context(), "none")
		require.Equal(t, CodeNoMemory, CodeOf(err))
		m, err := cl.Open(t.Context(), "board")
		require.NoError(t, err)
		require.EqualValues(t, 4096, m.Len())

		for i := range 2 {
			want := testenv.Pattern(1000, i)
			require.NoError(t, m.Put(t.Context(), want, 96))
			s.loops[0].runOnLoop(func() { require.Equal(t, want, mem.Bytes()[96:1096]) }) // over tcp the server writes
			got := make([]byte, 1000)
			require.NoError(t, m.Get(t.Context(), got, 96))
			require.Equal(t, want, got)
			require.ErrorIs(t, m.Get(t.Context(), got, 3097), ucs.ErrRemoteAccess)
			if i == 0 {
				require.NoError(t, s.Close())
				s = listen(t, c, address, testServer())
				require.NoError(t, s.Publish("board", mem))
			}
		}
		if tls == "sm" {
			got := make([]byte, 8)
			testenv.NoAllocs(t, "get", func() { require.NoError(t, m.Get(context.Background(), got, 0)) })
			testenv.NoAllocs(t, "put", func() { require.NoError(t, m.Put(context.Background(), got, 0)) })
		}
		require.NoError(t, cl.Close())
		require.NoError(t, s.Close())
	})
}

// TestServer_Close: calls in progress fail, and the contexts of their handlers end.
func TestServer_Close(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		s, cl := newPair(t, tls, testServer())
		failed := make(chan error, 1)
		go func() {
			_, err := cl.Call(t.Context(), methodWait, nil, nil)
			failed <- err
		}()
		eventually(t, func() bool { return s.loops[0].stats[0].Load() == 1 })
		require.NoError(t, s.Close())
		require.Equal(t, CodeLost, CodeOf(<-failed))
		require.NoError(t, cl.Close())
	})
}

// TestClient_Stats: closed and failed connections have no node in the tree; "closed" has their counts.
func TestClient_Stats(t *testing.T) {
	c := newContext(t, "sm")
	peers := make(chan *Peer, 1)
	s := listen(t, c, freshName(), ServerConfig{OnPeer: func(p *Peer) { peers <- p }})
	var cfg ClientConfig
	cfg.Handlers.Handle(methodEcho, HandlerConfig{}, echo)
	cl := dial(t, c, s.Addr().String(), cfg)
	_, err := (<-peers).Call(t.Context(), methodEcho, nil, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for range 5 {
		_, err := cl.connect(t.Context())
		require.Error(t, err)
	}
	require.NoError(t, cl.Close())
	nodes := cl.Stats().Snapshot().Children
	require.Len(t, nodes, 1)
	require.Equal(t, "closed", nodes[0].Name)
	require.Equal(t, "requests", nodes[0].Counters[0].Name)
	require.EqualValues(t, 1, nodes[0].Counters[0].N)
}

// TestPeer_Draining: a request to a peer that has sent a drain message is not sent.
func TestPeer_Draining(t *testing.T) {
	s, cl := newPair(t, "sm", testServer())
	p := cl.links[0].state.Load().p
	p.l.runOnLoop(func() { p.draining = true }) // and not drain, after which the client closes the connection soon
	_, err := p.Call(t.Context(), methodEcho, nil, nil)
	require.Equal(t, CodeDraining, CodeOf(err))
	require.Equal(t, CodeDraining, CodeOf(p.Send(t.Context(), methodEcho, nil)))
	p.l.runOnLoop(p.markDraining)
	got, err := cl.Call(t.Context(), methodEcho, []byte("x"), nil) // over the next connection
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
	require.EqualValues(t, 1, s.loops[0].stats[0].Load())
}

// TestClient_PausesAfterShortConnection: after a connection that failed soon, a client pauses before it connects again.
func TestClient_PausesAfterShortConnection(t *testing.T) {
	c := newContext(t, "sm")
	var peers uatomic.Int64
	cfg := testServer()
	cfg.OnPeer = func(*Peer) { peers.Inc() }
	methodDrop := Method{Name: "drop"}
	cfg.Handlers.Handle(methodDrop, HandlerConfig{Inline: true}, func(c *Call) error {
		c.Peer().disconnect(errViolation)
		return nil
	})
	s := listen(t, c, freshName(), cfg)
	const pause = time.Hour
	cl := dial(t, c, s.Addr().String(), ClientConfig{WaitConnected: 100 * time.Millisecond, MinBackoff: pause, MaxBackoff: 2 * pause})
	_, err := cl.Call(t.Context(), methodDrop, nil, nil)
	require.Equal(t, CodeLost, CodeOf(err))
	_, err = cl.Call(t.Context(), methodEcho, nil, nil)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	require.EqualValues(t, 1, peers.Load())
	require.Equal(t, pause, cl.nextPause(0))
	require.Equal(t, 2*pause, cl.nextPause(pause))
	require.Equal(t, 2*pause, cl.nextPause(2*pause))
}

// TestClient_HandlerDraining: a handler that has called a server that shuts down does not run again.
func TestClient_HandlerDraining(t *testing.T) {
	var cfg ServerConfig
	var runs uatomic.Int64
	cfg.Handlers.Handle(methodFail, HandlerConfig{}, func(*Call) error {
		runs.Inc()
		return fmt.Errorf("store: %w", &Error{Code: CodeDraining})
	})
	_, cl := newPair(t, "sm", cfg)
	_, err := cl.Call(t.Context(), methodFail, nil, nil)
	require.EqualError(t, err, "ucprpc: failed: store: ucprpc: the server shuts down")
	require.EqualValues(t, 1, runs.Load())
}

// TestClient_HandlerWaitsForConnection: a handler whose connection has failed calls the server over the next one.
func TestClient_HandlerWaitsForConnection(t *testing.T) {
	c := newContext(t, "sm")
	peers := make(chan *Peer, 2)
	server := testServer()
	server.OnPeer = func(p *Peer) { peers <- p }
	s := listen(t, c, freshName(), server)
	connected, replied := make(chan *Client, 1), make(chan error, 1)
	var cfg ClientConfig
	cfg.Handlers.Handle(methodWait, HandlerConfig{}, func(c *Call) error {
		<-c.Context().Done()
		_, err := (<-connected).Call(t.Context(), methodEcho, nil, nil)
		replied <- err
		return err
	})
	cl := dial(t, c, s.Addr().String(), cfg)
	connected <- cl
	p := <-peers
	require.NoError(t, p.Send(t.Context(), methodWait, nil))
	l := cl.links[0].state.Load().p.l
	eventually(t, func() bool { return l.stats[0].Load() == 1 })
	p.l.runOnLoop(func() { p.disconnect(errViolation) })
	select {
	case err := <-replied:
		require.NoError(t, err)
	case <-time.After(hang):
		t.Fatal("the call hangs")
	}
}

// TestClient_EarlyMessages: a client handles, in order, messages that arrive before Dial returns.
func TestClient_EarlyMessages(t *testing.T) {
	const dials, messages = 20, 10
	c := newContext(t, "sm")
	var server ServerConfig
	server.OnPeer = func(p *Peer) {
		for i := range messages {
			b := packed(header{kind: kindOneWay, number: methodInline.Number}, "")
			r, err := p.ep.SendActive(amID, b, []byte{byte(i)}, nil)
			r.Release()
			assert.NoError(t, err)
		}
	}
	s := listen(t, c, freshName(), server)
	came := make(chan byte, messages)
	var cfg ClientConfig
	cfg.Handlers.Handle(methodInline, HandlerConfig{Inline: true}, func(c *Call) error {
		came <- c.Data[0]
		return nil
	})
	for range dials {
		cl := dial(t, c, s.Addr().String(), cfg)
		for i := range messages {
			select {
			case got := <-came:
				require.EqualValues(t, i, got)
			case <-time.After(hang):
				t.Fatal("a message is lost")
			}
		}
		require.NoError(t, cl.Close())
	}
}
