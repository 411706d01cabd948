package ucp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// users is goroutines that use two shared workers at the same time, each with its own memory, tags and endpoints.
type users struct {
	t         *testing.T
	p         *ucppair.Pair
	a, b      *ucp.SharedWorker
	ctx       context.Context
	closing   uatomic.Bool // operations may fail with any error
	completed uatomic.Int64
	wanted    uatomic.Int64 // calls of OnDone
	added     uatomic.Int64
}

// member is one of the users.
type member struct {
	*users
	i    int
	rng  *rand.Rand
	slot []byte // memory at b
	old  uint64
}

const userSlot = tlsets.MemLen / 2 / sharers

// ok reports whether an operation has succeeded.
func (m *member) ok(err error) bool {
	return err == nil || !m.closing.Load() && assert.NoError(m.t, err)
}

func (m *member) addr() uint64 { return m.p.B.Mem.Addr() + uint64(m.i*userSlot) }

// params counts the completion of the operation.
func (m *member) params() *ucp.OpParams {
	return &ucp.OpParams{OnDone: func(error) { m.completed.Inc() }}
}

// counted records that OnDone will be called.
func (m *member) counted(r *ucp.Request, err error) (*ucp.Request, error) {
	if r != nil {
		m.wanted.Inc()
	}
	return r, err
}

func (m *member) put() bool {
	n := 1 + m.rng.IntN(userSlot)
	copy(m.slot, testenv.Pattern(n, m.rng.IntN(256)))
	return m.ok(m.a.Run(m.ctx, func() (*ucp.Request, error) {
		return m.counted(m.p.A.EP.Put(m.slot[:n], m.addr(), m.p.A.Key, m.params()))
	})) && m.ok(m.a.Run(m.ctx, m.p.A.EP.Flush))
}

func (m *member) get() bool {
	got := make([]byte, 1+m.rng.IntN(userSlot))
	err := m.a.Run(m.ctx, func() (*ucp.Request, error) { return m.p.A.EP.Get(got, m.addr(), m.p.A.Key, nil) })
	return m.ok(err) && (err != nil || assert.Equal(m.t, m.slot[:len(got)], got))
}

func (m *member) add() bool {
	err := m.a.Run(m.ctx, func() (*ucp.Request, error) {
		return m.p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &m.old, m.p.B.Mem.Addr()+tlsets.MemLen/2, m.p.A.Key)
	})
	if err == nil {
		m.added.Inc()
	}
	return m.ok(err)
}

// message sends from a to b, where another goroutine receives. The send may complete while the transport of a still has
// data for b: a makes progress until b has received the message.
func (m *member) message() bool {
	tag, n := uint64(m.i+1), m.rng.IntN(40_000)
	data, got := testenv.Pattern(n, m.rng.IntN(256)), make([]byte, n)
	received := make(chan error, 1)
	var over uatomic.Bool
	go func() {
		err := m.b.Run(m.ctx, func() (*ucp.Request, error) {
			return m.counted(m.p.B.W.TagRecv(got, tag, exact, nil, m.params()))
		})
		over.Store(true)
		m.a.Do(func(*ucp.Worker) {}) // wakes the Until
		received <- err
	}()
	err := m.a.Run(m.ctx, func() (*ucp.Request, error) { return m.p.A.EP.TagSendSync(tag, data, nil) })
	if err == nil {
		err = m.a.Until(m.ctx, over.Load)
	}
	why := <-received
	return m.ok(err) && m.ok(why) && (err != nil || why != nil || assert.Equal(m.t, data, got))
}

// soon returns a context that is canceled a moment later.
func (m *member) soon() context.Context {
	ctx, cancel := context.WithCancel(m.ctx)
	n := m.rng.IntN(20)
	go func() {
		for range n {
			runtime.Gosched()
		}
		cancel()
	}()
	return ctx
}

// givenUp waits for a message that is not sent, until its context is canceled.
func (m *member) givenUp() bool {
	buf, ctx, none := make([]byte, 20_000), m.soon(), uint64(1<<32+m.i)
	var err error
	switch m.rng.IntN(4) {
	case 0:
		err = m.a.Run(ctx, func() (*ucp.Request, error) { return m.p.A.W.TagRecv(buf, none, exact, nil, nil) })
	case 1:
		err = m.a.Run(ctx, func() (*ucp.Request, error) { return m.p.A.EP.TagSendSync(none, buf, nil) })
	case 2:
		_, err = m.a.StreamRecv(ctx, m.p.A.EP, buf)
	case 3:
		err = m.a.Until(ctx, func() bool { return false })
	}
	return m.closing.Load() || assert.ErrorIs(m.t, err, context.Canceled)
}

// canceled waits for a receive that another goroutine cancels.
func (m *member) canceled() bool {
	var r *ucp.Request
	var err error
	m.a.Do(func(w *ucp.Worker) { r, err = m.counted(w.TagRecv(make([]byte, 8), 1<<33, exact, nil, m.params())) })
	if err != nil {
		return m.ok(err)
	}
	go m.a.Do(func(*ucp.Worker) { r.Cancel() })
	err = m.a.Run(m.ctx, func() (*ucp.Request, error) { return r, nil })
	return m.closing.Load() || assert.ErrorIs(m.t, err, ucs.ErrCanceled)
}

// endpoint makes an EP, uses it and closes it.
func (m *member) endpoint() bool {
	var e *ucp.EP
	var key *ucp.RKey
	var err error
	m.a.Do(func(w *ucp.Worker) {
		if e, err = w.NewEP(m.p.B.W.Address(), ucp.EPConfig{}); err == nil {
			key, err = e.Unpack(m.p.B.Mem.Pack())
		}
	})
	if err != nil {
		return m.ok(err)
	}
	copy(m.slot, testenv.Pattern(8, m.rng.IntN(256)))
	ok := m.ok(m.a.Run(m.ctx, func() (*ucp.Request, error) { return e.Put(m.slot[:8], m.addr(), key, nil) }))
	ok = ok && m.ok(m.a.Run(m.ctx, e.Flush))
	mode := ucp.CloseMode(m.rng.IntN(2))
	if m.rng.IntN(2) == 0 {
		m.a.Do(func(*ucp.Worker) {
			if r, err := e.Put(make([]byte, 10), m.p.B.Mem.Addr()+tlsets.MemLen-16, key, nil); err == nil {
				r.Release()
			}
		})
	}
	err = m.a.Run(m.ctx, func() (*ucp.Request, error) { return e.Close(mode) })
	m.a.Do(func(*ucp.Worker) { key.Close() })
	return ok && (err == nil || errors.Is(err, ucs.ErrClosed) || m.ok(err))
}

// fenced puts twice to the same address.
func (m *member) fenced() bool {
	n := 1 + m.rng.IntN(userSlot)
	first := testenv.Pattern(n, m.rng.IntN(256))
	copy(m.slot, testenv.Pattern(n, m.rng.IntN(256)))
	var err error
	m.a.Do(func(*ucp.Worker) {
		ep := m.p.A.EP
		err = errors.Join(ucppair.Release(ep.Put(first, m.addr(), m.p.A.Key, nil)), ep.Fence())
		err = errors.Join(err, ucppair.Release(ep.Put(m.slot[:n], m.addr(), m.p.A.Key, nil)))
	})
	return m.ok(err) && m.ok(m.a.Run(m.ctx, m.p.A.EP.Flush)) && m.get()
}

// hangUp is the id of an active message whose handler closes the EP.
const hangUp = 7

// dropped makes an EP that the peer closes in a handler, and closes its own EP in the callback. An EP to the own worker
// is closed by the handler.
func (m *member) dropped() bool {
	gone := false
	var err error
	var e *ucp.EP
	m.a.Do(func(w *ucp.Worker) {
		e, err = w.NewEP(m.p.B.W.Address(), ucp.EPConfig{OnError: func(e *ucp.EP, _ error) {
			gone = true
			_ = ucppair.Release(e.Close(ucp.CloseForce))
		}})
		if err == nil {
			err = ucppair.Release(e.SendActive(hangUp, nil, make([]byte, m.rng.IntN(20_000)), nil))
		}
	})
	return m.ok(err) && m.ok(m.a.Until(m.ctx, func() bool { return gone || m.p.Oneself() && e.Err() != nil }))
}

func (m *member) steps(n int) {
	todo := []func() bool{m.put, m.get, m.add, m.message, m.givenUp, m.canceled, m.endpoint, m.fenced, m.dropped}
	for range n {
		if m.closing.Load() || !todo[m.rng.IntN(len(todo))]() {
			return
		}
	}
}

// newUsers starts goroutines over a pair whose workers sleep whenever they may, without a timeout.
func newUsers(t *testing.T, p *ucppair.Pair, steps int) (c *users, wait func()) {
	for _, w := range []*ucp.Worker{p.A.W, p.B.W} {
		w.Engine().Spin.Fixed, w.Engine().ParkLimit = engine.YieldPolls, time.Hour
	}
	p.Connect()
	p.B.W.OnActive(hangUp, func(m *ucp.ActiveMessage) { _ = ucppair.Release(m.From.Close(ucp.CloseMode(rand.IntN(2)))) })
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	c = &users{t: t, p: p, a: p.A.W.Share(), ctx: ctx}
	if c.b = c.a; !p.Oneself() {
		c.b = p.B.W.Share()
	}
	serving, stop := context.WithCancel(ctx)
	var running, served sync.WaitGroup
	served.Go(func() { assert.Error(t, c.b.Serve(serving)) })
	for i := range sharers {
		m := &member{users: c, i: i, rng: rand.New(rand.NewPCG(rand.Uint64(), uint64(i))), slot: make([]byte, userSlot)}
		running.Go(func() { m.steps(steps) })
	}
	return c, func() {
		running.Wait()
		assert.NoError(t, ctx.Err(), "a goroutine hangs")
		stop()
		served.Wait()
		cancel()
	}
}

func TestSharedWorker_Users(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		c, wait := newUsers(t, p, 40)
		wait()
		p.Until(func() bool { return c.completed.Load() == c.wanted.Load() })
		idle(p)
		assert.Equal(t, c.wanted.Load(), c.completed.Load())
		assert.Equal(t, uint64(c.added.Load()), binary.LittleEndian.Uint64(p.B.Mem.Bytes()[tlsets.MemLen/2:]))
		assert.Zero(t, c.a.Blocked())
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return c.a.LockWaiters() == 0 }) // the timer of a vacancy may wait too
	})
}

// TestSharedWorker_UsersAndClose: one of the workers closes while goroutines use both.
func TestSharedWorker_UsersAndClose(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		c, wait := newUsers(t, p, 1000)
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return c.added.Load() > 5 })
		c.closing.Store(true)
		first, second := c.a, c.b
		if rand.IntN(2) == 0 {
			first, second = second, first
		}
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
		wait()
		assert.Equal(t, c.wanted.Load(), c.completed.Load())
	})
}
