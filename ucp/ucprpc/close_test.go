package ucprpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp"
)

// TestServer_CloseEndsAllContexts: Close ends the contexts of the handlers of all workers before it waits for a handler.
func TestServer_CloseEndsAllContexts(t *testing.T) {
	c := newContext(t, "sm")
	var cfg ServerConfig
	cfg.Workers = 2
	started, ended := make(chan *loop, 2), make(chan struct{})
	var first *loop
	cfg.Handlers.Handle(methodWait, HandlerConfig{}, func(c *Call) error {
		started <- c.l
		if c.l == first {
			<-ended
			return nil
		}
		<-c.Context().Done()
		close(ended)
		return nil
	})
	s := listen(t, c, freshName(), cfg)
	first = s.loops[0]
	cl := dial(t, c, s.Addr().String(), ClientConfig{Workers: 2})
	for range 2 {
		go func() { _, _ = cl.Call(context.Background(), methodWait, nil, nil) }()
	}
	require.NotSame(t, <-started, <-started)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	eventually(t, func() bool { return len(closed) == 1 })
	require.NoError(t, <-closed)
}

// TestMemory_StartPutThenClose: a put ends although this side closes while the flush of the put is in progress.
func TestMemory_StartPutThenClose(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c := newContext(t, tls)
		mem, err := c.MemAlloc(1 << 20)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, mem.Close()) })
		peers := make(chan *Peer, 1)
		cfg := testServer()
		cfg.OnPeer = func(p *Peer) { peers <- p }
		s := listen(t, c, freshName(), cfg)
		owner := dial(t, c, s.Addr().String(), ClientConfig{})
		require.NoError(t, owner.Publish("board", mem))
		board, err := (<-peers).Open(t.Context(), "board")
		require.NoError(t, err)
		l := s.loops[0]
		ended, closed := make(chan error, 1), make(chan error, 1)
		l.runOnLoop(func() {
			assert.NoError(t, board.StartPut(make([]byte, 8), 0, func(err error) { ended <- err }))
			go func() { closed <- s.Close() }()
			eventually(t, func() bool { // the put and the close are tasks of one batch
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.tasks) == 2
			})
		})
		require.NoError(t, <-closed)
		eventually(t, func() bool { return len(ended) == 1 })
	})
}

// TestServer_CloseWithoutRecv: a handler returns after Close without the data of its request.
func TestServer_CloseWithoutRecv(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		started := make(chan struct{})
		var cfg ServerConfig
		cfg.Handlers.Handle(methodLarge, HandlerConfig{OnDemand: true}, func(c *Call) error {
			close(started)
			<-c.Context().Done()
			return nil
		})
		s, cl := newPair(t, tls, cfg)
		returned := make(chan error, 1)
		go func() {
			_, err := cl.Call(t.Context(), methodLarge, make([]byte, 8<<20), nil)
			returned <- err
		}()
		<-started
		require.NoError(t, s.Close())
		assert.Equal(t, CodeLost, CodeOf(<-returned))
	})
}

// TestClient_HandlerOfFailedAttempt: a request arrives while the client connects, and the attempt fails. The handler waits for
// the next connection, which the client makes.
func TestClient_HandlerOfFailedAttempt(t *testing.T) {
	peers, method := 0, Method{Number: 50}
	s := newSilent(t, newContext(t, "sm"), ucp.ListenConfig{Private: []byte(hello), OnPeer: func(p *ucp.Peer) {
		if peers++; peers != 2 {
			return
		}
		for _, h := range [][]byte{packed(header{kind: kindOneWay, number: method.Number}, ""), make([]byte, headerLen)} {
			r, err := p.EP.SendActive(amID, h, nil, nil)
			assert.NoError(t, err)
			r.Release()
		}
	}})
	var cl *Client
	handled := make(chan error, 1)
	cfg := ClientConfig{WaitConnected: -1}
	cfg.Handlers.Handle(method, HandlerConfig{}, func(c *Call) error {
		<-c.Context().Done() // otherwise the invalid message may arrive after Send
		handled <- cl.Send(context.Background(), Method{Number: 99}, nil)
		return nil
	})
	s.serve(t, func() {
		cl = dial(t, newContext(t, "sm"), s.l.Addr().String(), cfg)
		p := cl.links[0].state.Load().p
		p.l.runOnLoop(func() { p.disconnect(errViolation) })
		eventually(t, func() bool { return len(handled) == 1 })
		require.NoError(t, <-handled)
	})
	require.Equal(t, 3, peers)
}

// TestClient_CloseCancelsCalls: Close cancels the calls in progress before it waits until the last messages are sent. Otherwise
// it would wait for a handler that does not receive its large request.
func TestClient_CloseCancelsCalls(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		started, ended := make(chan struct{}), make(chan error, 1)
		var cfg ServerConfig
		cfg.Handlers.Handle(methodLarge, HandlerConfig{OnDemand: true}, func(c *Call) error {
			close(started)
			<-c.Context().Done()
			ended <- context.Cause(c.Context())
			return nil
		})
		_, cl := newPair(t, tls, cfg)
		returned := make(chan error, 1)
		go func() {
			_, err := cl.Call(t.Context(), methodLarge, make([]byte, 8<<20), nil)
			returned <- err
		}()
		<-started
		require.NoError(t, cl.Close())
		require.Equal(t, CodeLost, CodeOf(<-returned))
		require.Equal(t, context.Canceled, <-ended)
	})
}
