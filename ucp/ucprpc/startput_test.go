package ucprpc

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
)

// TestMemory_StartPut: a handler of a server that runs inline writes to memory of a client before it replies.
func TestMemory_StartPut(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c := newContext(t, tls)
		mem, err := c.MemAlloc(1 << 20)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, mem.Close()) })
		peers := make(chan *Peer, 2)
		cfg := testServer()
		cfg.OnPeer = func(p *Peer) { peers <- p }
		var log *Memory
		cfg.Handlers.Handle(methodForward, HandlerConfig{}, func(c *Call) error {
			err := log.StartPut(c.Data, 8, c.Finish)
			if err != nil {
				return err
			}
			return ErrPending
		})
		s := listen(t, c, freshName(), cfg)
		owner := dial(t, c, s.Addr().String(), ClientConfig{})
		p := <-peers
		_, err = p.Open(t.Context(), "log")
		require.Equal(t, CodeNoMemory, CodeOf(err))
		require.NoError(t, owner.Publish("log", mem))
		log, err = p.Open(t.Context(), "log")
		require.NoError(t, err)
		require.EqualValues(t, 1<<20, log.Len())
		owner.Unpublish("log")
		_, err = p.Open(t.Context(), "log")
		require.Equal(t, CodeNoMemory, CodeOf(err))
		cl := dial(t, c, s.Addr().String(), ClientConfig{})
		for i, n := range []int{1, 8, 100, 5000, 200_000, 1<<20 - 8} {
			want := testenv.Pattern(n, i)
			_, err := cl.Call(t.Context(), methodForward, want, nil)
			require.NoError(t, err)
			owner.links[0].state.Load().p.l.runOnLoop(func() { require.Equal(t, want, mem.Bytes()[8:8+n]) }) // over tcp the owner writes
		}
		_, err = cl.Call(t.Context(), methodForward, make([]byte, 1<<20-7), nil)
		require.Equal(t, CodeFailed, CodeOf(err))
		require.NoError(t, owner.Close())
		eventually(t, func() bool {
			_, err := cl.Call(t.Context(), methodForward, []byte("late"), nil)
			return CodeOf(err) == CodeUnavailable
		})
	})
}

// TestStorm_Start: calls that are started end exactly once while the peers that they are for connect and disconnect.
func TestStorm_Start(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c := newContext(t, tls)
		mem, err := c.MemAlloc(4096)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, mem.Close()) })
		peers := make(chan *Peer, 1)
		cfg := testServer()
		cfg.OnPeer = func(p *Peer) { peers <- p }
		s := listen(t, c, freshName(), cfg)
		var echoes ClientConfig
		echoes.Handlers.Handle(methodInline, HandlerConfig{Inline: true}, echo)
		for range testenv.Rounds(5, 100) {
			cl := dial(t, c, s.Addr().String(), echoes)
			require.NoError(t, cl.Publish("board", mem))
			p := <-peers
			board, err := p.Open(t.Context(), "board")
			require.NoError(t, err)
			var started, replies, failures uatomic.Int64
			stop, buf := make(chan struct{}), make([]byte, 100)
			var all sync.WaitGroup
			ended := func(err error) {
				if err == nil {
					replies.Inc()
				} else {
					failures.Inc()
				}
			}
			for range 3 {
				all.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						call := p.Start(methodInline, buf, nil, func(_ []byte, err error) { ended(err) })
						put := board.StartPut(buf, 0, ended)
						for _, err := range []error{call, put} {
							if err == nil {
								started.Inc()
							} else if CodeOf(err) != CodeBusy {
								assert.NoError(t, err)
							}
						}
						runtime.Gosched()
					}
				})
			}
			eventually(t, func() bool { return replies.Load() > 20 })
			require.NoError(t, cl.Close())
			eventually(t, func() bool { return failures.Load() > 20 })
			close(stop)
			all.Wait()
			eventually(t, func() bool { return started.Load() == replies.Load()+failures.Load() })
		}
	})
}

// TestStart_NoAllocs: a pending call whose handler starts a call and a put allocates nothing.
func TestStart_NoAllocs(t *testing.T) {
	c := newContext(t, "sm")
	mem, err := c.MemAlloc(4096)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, mem.Close()) })
	peers := make(chan *Peer, 2)
	var cfg ServerConfig
	cfg.OnPeer = func(p *Peer) { peers <- p }
	var p *Peer
	var board *Memory
	var current *Call
	request, buf := make([]byte, 64), make([]byte, 64)
	onPut := func(err error) { current.Finish(err) }
	onReply := func(_ []byte, err error) {
		if err = errors.Join(err, board.StartPut(request, 0, onPut)); err != nil {
			current.Finish(err)
		}
	}
	cfg.Handlers.Handle(methodLater, HandlerConfig{Inline: true}, func(c *Call) error {
		current = c
		if err := p.Start(methodInline, request, buf, onReply); err != nil {
			return err
		}
		return ErrPending
	})
	s := listen(t, c, freshName(), cfg)
	var echoes ClientConfig
	echoes.Handlers.Handle(methodInline, HandlerConfig{Inline: true}, echo)
	owner := dial(t, c, s.Addr().String(), echoes)
	require.NoError(t, owner.Publish("board", mem))
	p = <-peers
	board, err = p.Open(t.Context(), "board")
	require.NoError(t, err)
	cl := dial(t, c, s.Addr().String(), ClientConfig{})
	testenv.NoAllocs(t, "pending call", func() {
		if _, err := cl.Call(context.Background(), methodLater, request, buf); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMemory_StartPutReconnected: StartPut opens the memory again when the client has connected to the next server. Server.Shutdown
// does not wait for a client that always has puts in progress.
func TestMemory_StartPutReconnected(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c, address := newContext(t, tls), freshName()
		mem, err := c.MemAlloc(4096)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, mem.Close()) })
		s := listen(t, c, address, testServer())
		require.NoError(t, s.Publish("board", mem))
		cl := dial(t, c, address, ClientConfig{})
		board, err := cl.Open(t.Context(), "board")
		require.NoError(t, err)
		var good, running uatomic.Int64
		var over uatomic.Bool
		for range 4 { // chains of puts
			var put func(err error)
			buf := make([]byte, 1000)
			put = func(err error) {
				if err == nil {
					good.Inc()
				} else {
					assert.Contains(t, []Code{CodeDraining, CodeLost, CodeUnavailable}, CodeOf(err), err)
				}
				if over.Load() || !assert.NoError(t, board.StartPut(buf, 8, put)) {
					running.Dec()
				}
			}
			running.Inc()
			require.NoError(t, board.StartPut(buf, 8, put))
		}
		for range 3 {
			before := good.Load()
			eventually(t, func() bool { return good.Load() > before+20 })
			require.NoError(t, s.Shutdown(t.Context()))
			s = listen(t, c, address, testServer())
			require.NoError(t, s.Publish("board", mem))
		}
		before := good.Load()
		eventually(t, func() bool { return good.Load() > before+20 })
		over.Store(true)
		eventually(t, func() bool { return running.Load() == 0 })
	})
}
