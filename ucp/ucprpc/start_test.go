package ucprpc

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// Methods of the tests below.
var (
	methodLater    = Method{Number: 20}
	methodLaterToo = Method{Number: 21}
	methodForward  = Method{Number: 22}
)

// TestCall_Finish: a call lasts until Finish, by handlers of each type. Others are handled in between.
func TestCall_Finish(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		later := make(chan *Call, 1)
		handle := func(c *Call) error {
			c.Reply = append(c.Reply, "said "...)
			c.Reply = append(c.Reply, c.Data...)
			later <- c
			return ErrPending
		}
		cfg := testServer()
		cfg.Handlers.Handle(methodLater, HandlerConfig{Inline: true}, handle)
		cfg.Handlers.Handle(methodLaterToo, HandlerConfig{}, handle)
		_, cl := newPair(t, tls, cfg)
		for i := range 100 {
			m := []Method{methodLater, methodLaterToo}[i%2]
			type result struct {
				reply string
				err   error
			}
			done := make(chan result, 1)
			go func() {
				reply, err := cl.Call(t.Context(), m, fmt.Append(nil, i), nil)
				done <- result{string(reply), err}
			}()
			c := <-later
			_, err := cl.Call(t.Context(), methodInline, nil, nil)
			require.NoError(t, err)
			require.Empty(t, done)
			if i%4 < 2 {
				c.Finish(nil)
				require.Equal(t, result{reply: fmt.Sprint("said ", i)}, <-done)
			} else {
				c.Finish(&Error{Code: CodeUser})
				require.Equal(t, CodeUser, CodeOf((<-done).err))
			}
		}
	})
}

// TestCall_FinishInHandler: a call that ends before its handler has returned.
func TestCall_FinishInHandler(t *testing.T) {
	handle := func(c *Call) error {
		c.Reply = append(c.Reply, c.Data...)
		c.Finish(nil)
		return ErrPending
	}
	cfg := testServer()
	cfg.Handlers.Handle(methodLater, HandlerConfig{Inline: true}, handle)
	cfg.Handlers.Handle(methodLaterToo, HandlerConfig{}, handle)
	_, cl := newPair(t, "sm", cfg)
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for k := range 100 {
				want := fmt.Sprint(i, k)
				reply, err := cl.Call(t.Context(), []Method{methodLater, methodLaterToo}[k%2], []byte(want), nil)
				if !assert.NoError(t, err) || !assert.Equal(t, want, string(reply)) {
					return
				}
			}
		})
	}
	callers.Wait()
}

// TestCall_FinishTooLate: a call may end after its connection, and after its server.
func TestCall_FinishTooLate(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		later := make(chan *Call, 1)
		cfg := testServer()
		cfg.Handlers.Handle(methodLater, HandlerConfig{Inline: true}, func(c *Call) error {
			later <- c
			return ErrPending
		})
		c := newContext(t, tls)
		s := listen(t, c, freshName(), cfg)
		call := func() (*Client, *Call) {
			cl := dial(t, c, s.Addr().String(), ClientConfig{})
			go func() { _, _ = cl.Call(t.Context(), methodLater, nil, nil) }()
			return cl, <-later
		}
		inFlight := func() (n int) {
			s.loops[0].runOnLoop(func() { n = s.loops[0].inFlight })
			return n
		}
		cl, pending := call()
		ctx := pending.Context()
		require.NoError(t, cl.Close())
		<-ctx.Done()
		require.Equal(t, 1, inFlight())
		pending.Finish(nil)
		eventually(t, func() bool { return inFlight() == 0 })

		_, pending = call()
		ctx = pending.Context()
		require.NoError(t, s.Close())
		<-ctx.Done()
		pending.Finish(nil)
	})
}

// TestPeer_Start: handlers that run inline call another peer, and reply with its reply.
func TestPeer_Start(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		c := newContext(t, tls)
		peers := make(chan *Peer, 4)
		cfg := testServer()
		cfg.OnPeer = func(p *Peer) { peers <- p }
		var backend *Peer
		cfg.Handlers.Handle(methodForward, HandlerConfig{Inline: true}, func(c *Call) error {
			request := append([]byte(nil), c.Data...)
			err := backend.Start(methodEcho, request, nil, func(reply []byte, err error) {
				c.Reply = append(c.Reply, reply...)
				c.Finish(err)
			})
			if err != nil {
				return err
			}
			return ErrPending
		})
		s := listen(t, c, freshName(), cfg)
		var echoes ClientConfig
		echoes.Handlers.Handle(methodEcho, HandlerConfig{}, echo)
		behind := dial(t, c, s.Addr().String(), echoes)
		backend = <-peers
		cl := dial(t, c, s.Addr().String(), ClientConfig{})
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for k := range 50 {
					want := testenv.Pattern([]int{0, 10, 300, 20_000}[k%4], i*50+k)
					reply, err := cl.Call(t.Context(), methodForward, want, nil)
					if !assert.NoError(t, err) || !assert.Equal(t, string(want), string(reply)) {
						return
					}
				}
			})
		}
		callers.Wait()
		require.NoError(t, behind.Close())
		eventually(t, func() bool {
			_, err := cl.Call(t.Context(), methodForward, nil, nil)
			return CodeOf(err) == CodeUnavailable
		})
	})
}

// TestPeer_StartAtClient: a client without other callers ends what it has started.
func TestPeer_StartAtClient(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		s, cl := newPair(t, tls, testServer())
		p := cl.links[0].state.Load().p
		replied := make(chan string, 1)
		for i := range 20 {
			require.NoError(t, p.Start(methodInline, fmt.Append(nil, i), nil, func(reply []byte, err error) {
				assert.NoError(t, err)
				replied <- string(reply)
			}))
			require.Equal(t, fmt.Sprint(i), <-replied)
		}
		assert.Equal(t, CodeTooLong, CodeOf(p.Start(Method{Name: string(make([]byte, maxName+1))}, nil, nil, nil)))

		failed := make(chan error, 2)
		require.NoError(t, p.Start(methodWait, nil, nil, func(_ []byte, err error) { failed <- err }))
		eventually(t, func() bool { return s.loops[0].stats[0].Load() == 21 })
		require.NoError(t, cl.Close())
		assert.Equal(t, CodeLost, CodeOf(<-failed))
		require.NoError(t, p.Start(methodWait, nil, nil, func(_ []byte, err error) { failed <- err }))
		assert.Equal(t, CodeUnavailable, CodeOf(<-failed), "a client that is closed")
	})
}

// TestPeer_StartMany: a limited number of operations can be started; those that end make room.
func TestPeer_StartMany(t *testing.T) {
	c := newContext(t, "sm")
	s := listen(t, c, freshName(), testServer())
	cl := dial(t, c, s.Addr().String(), ClientConfig{Limits: Limits{MaxCalls: 10}})
	p := cl.links[0].state.Load().p
	var started, ended int
	done := make(chan error, 10)
	for range 1000 {
		for {
			err := p.Start(methodInline, nil, nil, func(_ []byte, err error) { done <- err })
			if CodeOf(err) == CodeBusy {
				break
			}
			require.NoError(t, err)
			started++
		}
		require.NoError(t, <-done)
		ended++
	}
	for ; ended < started; ended++ {
		require.NoError(t, <-done)
	}
}
