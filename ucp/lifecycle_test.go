package ucp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// idle makes progress until there are no events any more and ifaces without connections are not polled.
func idle(p *ucppair.Pair) {
	for quiet := 0; quiet < 2*engine.CooldownPolls; quiet++ {
		if p.Step() > 0 {
			quiet = 0
		}
	}
}

func TestNewEP_SendsAndOpensNothing(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	idle(p)
	assert.Zero(t, f.EPsOpened, "transport endpoints")
	assert.Zero(t, f.Sent, "messages")
	assert.False(t, p.A.EP.Linked())

	require.NoError(t, p.Finish(p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)))
	assert.True(t, p.A.EP.Connected())
	assert.Equal(t, 4, f.EPsOpened, "an rc and an auxiliary endpoint on each side")
}

func TestNewEP_FlushAndFenceOfAnUnusedEP(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	require.NoError(t, p.A.EP.Fence())
	r, err := p.A.EP.Flush()
	assert.Nil(t, r)
	assert.NoError(t, err)
	idle(p)
	assert.Zero(t, f.EPsOpened)
}

func TestConnect_Eager(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{Connect: ucp.ConnectEager}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	p.Until(p.A.EP.Connected)
	idle(p)
	assert.Equal(t, 4, f.EPsOpened)
}

// TestProgress_IdleIfacesAreNotPolled: after the handshake neither side polls the auxiliary transport, and a message to
// it still arrives.
func TestProgress_IdleIfacesAreNotPolled(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	assert.Zero(t, p.A.W.Engine().Polled(), "nothing is connected")
	p.Connect().Warm()
	idle(p)
	require.Equal(t, 1, p.A.W.Engine().Polled())
	require.Equal(t, 1, p.B.W.Engine().Polled())
	polls := func() (n int) {
		for _, i := range f.Ifaces {
			if i.Kind.Name == "fud" {
				n += i.Polls
			}
		}
		return n
	}
	before := polls()
	for range 100 {
		p.Step()
	}
	assert.Equal(t, before, polls())

	other, err := p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	key, err := other.Unpack(p.A.Mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	require.NoError(t, p.Finish(other.Put([]byte{3}, p.A.Mem.Addr(), key, nil)))
	require.NoError(t, p.Finish(other.Flush()))
	assert.Equal(t, byte(3), p.A.Mem.Bytes()[0])
}

func TestProgress_IdleSwitch(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{Study: ucp.Study{ProgressIdle: true}}, faketp.LikeRC(), faketp.LikeUD())
	assert.Equal(t, 2, p.A.W.Engine().Polled())
	p.Connect().Warm()
	idle(p)
	assert.Equal(t, 2, p.A.W.Engine().Polled())
}

func TestKeyResolve_AtOp(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{Study: ucp.Study{KeyResolve: ucp.ResolveAtOp}}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	ep, key, addr := p.A.EP, p.A.Key, p.B.Mem.Addr()
	unbound := func() {
		t.Helper()
		assert.True(t, key.Late(), "looks up the lane")
	}
	unbound()
	before := ucp.RequestsInUse(p.A.W)
	require.NoError(t, p.Finish(ep.Put([]byte{4}, addr, key, nil)))
	assert.Equal(t, before, ucp.RequestsInUse(p.A.W), "a short put takes no request, however the key is resolved")
	unbound()
	require.NoError(t, p.Finish(ep.Put(testenv.Pattern(200, 1), addr, key, nil)))
	require.NoError(t, p.Finish(ep.Put(testenv.Pattern(5000, 1), addr, key, nil)))
	unbound()
	got := make([]byte, 200)
	require.NoError(t, p.Finish(ep.Get(got, addr, key, nil)))
	testenv.RequireBytes(t, testenv.Pattern(200, 1), got)
	unbound()
	old, result := binary.LittleEndian.Uint64(p.B.Mem.Bytes()[8:]), new(uint64)
	require.NoError(t, ep.AtomicPost(uct.AtomicAdd, 8, 1, addr+8, key))
	require.NoError(t, p.Finish(ep.AtomicFetch(uct.AtomicAdd, 8, 1, result, addr+8, key)))
	assert.Equal(t, old+1, *result)
	require.NoError(t, p.Finish(ep.AtomicCSwap(8, old+2, 7, result, addr+8, key)))
	assert.Equal(t, old+2, *result)
	require.NoError(t, p.Finish(ep.AtomicFetch(uct.AtomicXor, 4, 1, result, addr+8, key)), "emulated")
	unbound()
	require.NoError(t, ep.Fence())
	require.NoError(t, p.Finish(ep.Put([]byte{4}, addr, key, nil)))
	require.NoError(t, p.Flush())
	assert.Equal(t, byte(4), p.B.Mem.Bytes()[0])
	assert.Equal(t, uint64(6), binary.LittleEndian.Uint64(p.B.Mem.Bytes()[8:]))
	_, err := ep.Put(make([]byte, 5000), addr+tlsets.MemLen, key, nil)
	assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
}

// TestConnect_BothSidesAtOnce: two EPs that connect at the same time become one connection.
func TestConnect_BothSidesAtOnce(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Both()
	ra, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	rb, err := p.B.EP.Put([]byte{2}, p.A.Mem.Addr(), p.B.Key, nil)
	require.NoError(t, err)
	require.NoError(t, p.Finish(ra, nil))
	require.NoError(t, p.Finish(rb, nil))
	idle(p)
	assert.Equal(t, 4, f.EPsOpened, "one rc endpoint on each side, and the auxiliary ones")
	assert.Equal(t, 1, p.A.W.EPs().Len())
	assert.Equal(t, 1, p.B.W.EPs().Len())
}

// TestNewEP_AdoptsThePeersConnection: an EP to a worker that has connected already opens no transport endpoint.
func TestNewEP_AdoptsThePeersConnection(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	idle(p)
	before := f.EPsOpened
	p.B.Dial(t, &p.A)
	require.NoError(t, p.Finish(p.B.EP.Put([]byte{7}, p.A.Mem.Addr(), p.B.Key, nil)))
	require.NoError(t, p.Finish(p.B.EP.Flush()))
	assert.Equal(t, byte(7), p.A.Mem.Bytes()[0])
	assert.Equal(t, before, f.EPsOpened)
	assert.Equal(t, 1, p.B.W.EPs().Len())
}

// TestNewEP_AdoptedAndClosedByThePeer: an EP that has adopted the connection of the peer, and was not used, does not
// fail when the peer closes its EP.
func TestNewEP_AdoptedAndClosedByThePeer(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	ep, err := p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	require.True(t, ep.Linked(), "it is the peer's connection")
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	idle(p)
	require.NoError(t, ep.Err())
	assert.False(t, ep.Linked())
	key, err := ep.Unpack(p.A.Mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	require.NoError(t, p.Finish(ep.Put([]byte{6}, p.A.Mem.Addr(), key, nil)))
	require.NoError(t, p.Finish(ep.Flush()))
	assert.Equal(t, byte(6), p.A.Mem.Bytes()[0])
}

func TestConnect_ToOneself(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.A.Dial(t, &p.A)
		require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(3000, 1), p.A.Mem.Addr(), p.A.Key, nil)))
		require.NoError(t, p.Flush())
		testenv.RequireBytes(t, testenv.Pattern(3000, 1), p.A.Mem.Bytes()[:3000])
		assert.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return p.A.W.EPs().Len() == 0 })
	})
}

func TestConnect_ManyEPsToOneWorker(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		for i := range 5 {
			p.A.Dial(t, &p.B)
			require.NoError(t, p.Finish(p.A.EP.Put([]byte{byte(i + 1)}, p.B.Mem.Addr()+uint64(i), p.A.Key, nil)))
			require.NoError(t, p.Flush())
		}
		testenv.RequireBytes(t, []byte{1, 2, 3, 4, 5}, p.B.Mem.Bytes()[:5])
	})
}

// TestConnect_FallsBack: a lane that cannot connect is replaced by the next best.
func TestConnect_FallsBack(t *testing.T) {
	for _, what := range []string{"new ep frc", "connect frc"} {
		t.Run(what, func(t *testing.T) {
			slow := faketp.LikeTCP()
			slow.Latency = faketp.LikeRC().Latency * 10
			p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD(), slow)
			p.Connect()
			f.FailNext(what, ucs.ErrNoMemory)
			require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(600, 1), p.B.Mem.Addr(), p.A.Key, nil)))
			require.NoError(t, p.Flush())
			testenv.RequireBytes(t, testenv.Pattern(600, 1), p.B.Mem.Bytes()[:600])
			assert.Equal(t, "ftcp", kindOf(p.A.EP.Lane(0).Iface))
		})
	}
}

// TestConnect_FallsBackAfterTheDial: a lane whose transport fails to connect at the first post is replaced too. The
// operations that wait for it continue over the next lane, in order, and both sides report the failure.
func TestConnect_FallsBackAfterTheDial(t *testing.T) {
	dials, next := faketp.LikeSM(), faketp.LikeTCP()
	dials.Dials, next.Latency = true, time.Millisecond
	p, f := ucppair.Fake(t, ucp.Config{}, dials, next)
	p.Connect()
	f.FailNext("dial fsm", ucs.ErrNoMemory)
	ep, key, addr := p.A.EP, p.A.Key, p.B.Mem.Addr()
	got := make([]byte, 600)
	var reqs []*ucp.Request
	add := func(r *ucp.Request, err error) {
		require.NoError(t, err)
		reqs = append(reqs, r)
	}
	add(ep.Put(testenv.Pattern(600, 1), addr, key, nil))
	add(ep.Put(testenv.Pattern(20, 2), addr+1000, key, nil))
	require.NoError(t, ep.Fence())
	add(ep.Get(got, addr, key, nil))
	require.NoError(t, ep.Fence())
	add(ep.Put(testenv.Pattern(600, 3), addr, key, nil))
	add(ep.Flush())
	for _, r := range reqs {
		require.NoError(t, p.Finish(r, nil))
	}
	testenv.RequireBytes(t, testenv.Pattern(600, 1), got)
	testenv.RequireBytes(t, testenv.Pattern(600, 3), p.B.Mem.Bytes()[:600])
	testenv.RequireBytes(t, testenv.Pattern(20, 2), p.B.Mem.Bytes()[1000:1020])
	assert.Equal(t, "ftcp", kindOf(ep.Lane(0).Iface))
	assert.Contains(t, ep.Explain(), "failed transport: fsm fake0:1: fake: out of memory\n")
	assert.EqualValues(t, 1, counters(p.A.W)["worker.replaced_lanes"])
	assert.Zero(t, counters(p.A.W)["worker.failed_eps"])
}

// TestConnect_DeadPeerFailsAtOnce: if an error says that the peer is gone, the EP fails at once.
func TestConnect_DeadPeerFailsAtOnce(t *testing.T) {
	for _, why := range []error{ucs.ErrConnReset, ucs.ErrPeerClosed} {
		dials, next := faketp.LikeSM(), faketp.LikeTCP()
		dials.Dials, next.Latency = true, time.Millisecond
		p, f := ucppair.Fake(t, ucp.Config{}, dials, next)
		p.Connect()
		f.FailNext("dial fsm", why)
		err := p.Finish(p.A.EP.Put(testenv.Pattern(600, 1), p.B.Mem.Addr(), p.A.Key, nil))
		require.ErrorIs(t, err, why)
		assert.ErrorIs(t, err, ucs.ErrEPFailed)
		requireOneLine(t, err, "put 600 bytes to worker 0x")
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	}
}

func kindOf(i *ucp.Transport) string { return i.Attr().Resource.Transport }

func TestConnect_AllTransportsFail(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	var reported error
	ep, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{OnError: func(_ *ucp.EP, err error) { reported = err }})
	require.NoError(t, err)
	key, err := ep.Unpack(p.B.Mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	f.FailNext("connect frc", ucs.ErrNoMemory)
	assert.ErrorIs(t, p.Finish(ep.Put([]byte{1}, p.B.Mem.Addr(), key, nil)), ucs.ErrNoMemory)
	assert.ErrorIs(t, ep.Err(), ucs.ErrEPFailed)
	assert.ErrorIs(t, ep.Err(), ucs.ErrNoMemory)
	assert.Equal(t, ep.Err(), reported)
	_, err = ep.Put([]byte{1}, p.B.Mem.Addr(), key, nil)
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
	assert.NoError(t, p.Finish(ep.Close(ucp.CloseFlush)))
	idle(p)
	assert.Zero(t, p.B.W.EPs().Len(), "the peer was notified")
}

func TestClose_FlushCompletesOperations(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		r, err := p.A.EP.Put(testenv.Pattern(9000, 3), p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		c, err := p.A.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		_, err = p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
		assert.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.A.EP.Close(ucp.CloseFlush)
		assert.ErrorIs(t, err, ucs.ErrClosed)
		require.NoError(t, p.Finish(c, nil))
		require.NoError(t, p.Finish(r, nil))
		testenv.RequireBytes(t, testenv.Pattern(9000, 3), p.B.Mem.Bytes()[:9000])
		p.Until(func() bool { return p.A.W.EPs().Len() == 0 && p.B.W.EPs().Len() == 0 }) // the EP of the peer has closed too
		assert.Zero(t, p.A.W.Peers().Len())
		_, err = p.A.EP.Unpack(p.B.Mem.Pack())
		assert.ErrorIs(t, err, ucs.ErrClosed)
	})
}

func TestClose_ForceCancelsOperations(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		r, err := p.A.EP.Get(make([]byte, 9000), p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		f, err := p.A.EP.Flush()
		require.NoError(t, err)
		c, err := p.A.EP.Close(ucp.CloseForce)
		require.NoError(t, err)
		assert.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		assert.ErrorIs(t, p.Finish(f, nil), ucs.ErrCanceled)
		require.NoError(t, p.Finish(c, nil))
	})
}

func TestClose_NotifiesThePeer(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Both()
	p.Warm()
	require.NoError(t, p.Finish(p.B.EP.Put([]byte{1}, p.A.Mem.Addr(), p.B.Key, nil)))
	require.NoError(t, p.Finish(p.B.EP.Close(ucp.CloseFlush)))
	p.Until(func() bool { return p.A.EP.Err() != nil })
	assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrPeerClosed)
	assert.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
}

// TestPeerDies: each operation of the EP fails, in any state.
func TestPeerDies(t *testing.T) {
	for _, connected := range []bool{false, true} {
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		if connected {
			p.Warm()
		}
		var reqs []*ucp.Request
		add := func(r *ucp.Request, err error) {
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		for i := range 20 {
			add(p.A.EP.Put(testenv.Pattern(5000, i), p.B.Mem.Addr(), p.A.Key, nil))
			add(p.A.EP.Get(make([]byte, 5000), p.B.Mem.Addr(), p.A.Key, nil))
			add(p.A.EP.AtomicFetch(uct.AtomicOr, 4, 1, new(uint64), p.B.Mem.Addr(), p.A.Key))
			require.NoError(t, p.A.EP.Fence())
		}
		add(p.A.EP.Flush())
		add(p.A.W.Flush())
		for _, i := range f.Ifaces[2:] { // b's
			i.Kill()
		}
		for _, r := range reqs {
			for range 1000 {
				p.A.W.Progress()
			}
			require.True(t, r.Done())
			assert.ErrorIs(t, p.Finish(r, nil), ucs.ErrConnReset)
		}
		assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrConnReset)
		assert.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	}
}

func TestWorkerClose_WithWorkInFlight(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both()
		p.Warm()
		var reqs []*ucp.Request
		for i := range 20 {
			r, err := p.A.EP.Put(testenv.Pattern(5000, i), p.B.Mem.Addr(), p.A.Key, nil)
			require.NoError(t, err)
			g, err := p.A.EP.AtomicFetch(uct.AtomicXor, 4, 1, new(uint64), p.B.Mem.Addr(), p.A.Key)
			require.NoError(t, err)
			reqs = append(reqs, r, g)
		}
		require.NoError(t, p.A.W.Close())
		require.NoError(t, p.A.W.Close(), "idempotent")
		for _, r := range reqs {
			if r != nil {
				require.True(t, r.Done())
				if r.Status() != ucs.StatusOK {
					assert.Equal(t, ucs.StatusCanceled, r.Status())
				}
				r.Release()
			}
		}
		_, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
		assert.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		assert.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.A.W.Flush()
		assert.ErrorIs(t, err, ucs.ErrClosed)
		assert.ErrorIs(t, p.A.W.Fence(), ucs.ErrClosed)
		assert.ErrorIs(t, p.A.W.Serve(context.Background()), ucs.ErrClosed)
		p.Until(func() bool { return p.B.EP.Err() != nil || !p.B.EP.Linked() })
	})
}

func TestContext_CloseWithOpenWorker(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	err := p.A.Ctx.Close()
	assert.ErrorIs(t, err, ucs.ErrBusy)
	assert.EqualError(t, err, "ucp: close context: device is busy: close its workers first (open: 1)")
	c, err := ucp.NewContext(ucp.Config{}, faketp.New(faketp.LikeSM()))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "idempotent")
	_, err = c.NewWorker(ucp.WorkerConfig{})
	assert.ErrorIs(t, err, ucs.ErrClosed)
	_, err = c.MemAlloc(10)
	assert.ErrorIs(t, err, ucs.ErrClosed)
	assert.ErrorContains(t, err, "ucp: register memory")
}

func TestNewEP_Errors(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	for _, addr := range [][]byte{nil, []byte("garbage"), p.B.W.Address()[:20]} {
		_, err := p.A.W.NewEP(addr, ucp.EPConfig{})
		assert.ErrorIs(t, err, ucs.ErrInvalidAddr)
	}
	far := faketp.LikeRC()
	far.Device = "elsewhere"
	q, _ := ucppair.Fake(t, ucp.Config{}, far)
	_, err := p.A.W.NewEP(q.B.W.Address(), ucp.EPConfig{})
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.ErrorContains(t, err, "unreachable: another fabric")
	assert.Zero(t, p.A.W.Peers().Len(), "an unreachable peer is not stored")
}

// TestReceive_MalformedHandshake: malformed handshake messages do not affect a connection, and the worker stores nothing
// for them.
func TestReceive_MalformedHandshake(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	for _, b := range [][]byte{nil, []byte("X"), make([]byte, 100), make([]byte, 20000)} {
		p.A.W.Handler(wire.AMWireup)(b, nil)
		p.A.W.Handler(wire.AMRequest)(b, nil)
		p.A.W.Handler(wire.AMAnswer)(b, nil)
	}
	p.A.W.Handler(wire.AMRequest)(make([]byte, wire.RequestLen), nil)
	p.A.W.Handler(wire.AMAnswer)(make([]byte, wire.AnswerLen), nil)
	idle(p)
	assert.Positive(t, p.A.W.BadMessages().Load())
	require.NoError(t, p.Finish(p.A.EP.Put([]byte{8}, p.B.Mem.Addr(), p.A.Key, nil)))
	require.NoError(t, p.Flush())
}

func TestNewContext_Selection(t *testing.T) {
	comp := func() uct.Component { return faketp.New(faketp.LikeRC(), faketp.LikeUD(), faketp.LikeSM()) }
	names := func(t *testing.T, cfg ucp.Config) []string {
		c, err := ucp.NewContext(cfg, comp())
		require.NoError(t, err)
		w, err := c.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		defer func() { assert.NoError(t, errors.Join(w.Close(), c.Close())) }()
		var out []string
		for i, r := range w.AddressInfo().Resources {
			name := r.Transport
			if r.AuxOnly {
				name += ":aux"
			}
			assert.Equal(t, i, w.Ifaces()[i].Index())
			out = append(out, name)
		}
		return out
	}
	for _, tc := range []struct {
		name string
		cfg  ucp.Config
		want string
	}{
		{"all", ucp.Config{}, "frc fud fsm"},
		{"one that needs nothing", ucp.Config{TLS: config.Allow("fsm")}, "fsm"},
		{"one that needs a handshake", ucp.Config{TLS: config.Allow("frc")}, "frc fud:aux"},
		{"shared memory reaches no other host", ucp.Config{TLS: config.Allow("frc", "fsm")}, "frc fsm fud:aux"},
		{"all but one", ucp.Config{TLS: config.Deny("fud")}, "frc fsm fud:aux"},
		{"all of a component", ucp.Config{TLS: config.Allow("fake")}, "frc fud fsm"},
		{"shared memory", ucp.Config{TLS: config.Allow("shm")}, "fsm"},
		{"no shared memory", ucp.Config{TLS: config.Deny("shm")}, "frc fud"},
		{"by device", ucp.Config{NetDevices: config.Allow("fake0:1")}, "frc fud fsm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, strings.Fields(tc.want), names(t, tc.cfg))
		})
	}
	for _, tc := range []struct {
		name string
		cfg  ucp.Config
		want string
	}{
		{"unknown transport", ucp.Config{TLS: config.Allow("rc", "fsm")}, "transport rc not found (available: frc, fsm, fud)"},
		{"unknown device", ucp.Config{NetDevices: config.Allow("mlx5_0:1")}, "net device mlx5_0:1 not found (available: fake0:1)"},
		{"unknown shm device", ucp.Config{ShmDevices: config.Allow("memory")}, "shm device memory not found (available: fake0:1)"},
		{"excluded by device", ucp.Config{TLS: config.Allow("frc"), NetDevices: config.Deny("fake0:1")}, "transport frc: frc/fake0:1: NET_DEVICES=^fake0:1 excludes fake0:1"},
		{"unknown self device", ucp.Config{SelfDevices: config.Allow("memory")}, "self device memory not found (available: none)"},
		{"alias excluded by device", ucp.Config{TLS: config.Allow("shm", "frc"), ShmDevices: config.Deny("fake0:1")}, "transport shm: fsm/fake0:1: SHM_DEVICES=^fake0:1 excludes fake0:1"},
		{"nothing left", ucp.Config{TLS: config.Deny("frc", "fud", "fsm")}, "no transport is left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ucp.NewContext(tc.cfg, comp())
			assert.ErrorIs(t, err, ucs.ErrUnreachable)
			assert.ErrorContains(t, err, tc.want)
		})
	}
	_, err := ucp.NewContext(ucp.Config{Connect: "sometimes"}, comp())
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = ucp.NewContext(ucp.Config{}, brokenComponent{})
	assert.ErrorContains(t, err, "no transport is left")
	assert.ErrorContains(t, err, "no device today", "the error has the cause")
	_, err = ucp.NewContext(ucp.Config{TLS: config.Allow("frc")}, brokenComponent{})
	assert.ErrorContains(t, err, "no device today", "the error has the cause")
}

type brokenComponent struct{}

func (brokenComponent) Name() string                   { return "broken" }
func (brokenComponent) MDs() ([]uct.MDResource, error) { return nil, errors.New("no device today") }
func (brokenComponent) OpenMD(string) (uct.MD, error)  { return nil, ucs.ErrInternal }

func TestConfig_FromEnvironment(t *testing.T) {
	var cfg ucp.Config
	require.NoError(t, config.FromEnv([]string{
		"GUCX_TLS=rc,ud", "GUCX_NET_DEVICES=^eth0", "GUCX_CONNECT=eager", "GUCX_STUDY_KEY_RESOLVE=op",
		"GUCX_STUDY_PROGRESS_IDLE=y", "GUCX_ZCOPY_THRESH=100",
	}, cfg.Table()))
	assert.Equal(t, ucp.Config{
		TLS: config.Allow("rc", "ud"), NetDevices: config.Deny("eth0"), Connect: ucp.ConnectEager,
		Study: ucp.Study{KeyResolve: ucp.ResolveAtOp, ProgressIdle: true}, ZcopyThresh: 100,
	}, cfg)
	assert.Error(t, config.FromEnv([]string{"GUCX_CONNECT=never"}, cfg.Table()))
	assert.Error(t, config.FromEnv([]string{"GUCX_ZCOPY_THRESH=-1"}, cfg.Table()))
}

// TestWorkerClose_WithoutFlush: short puts that were executed without a completion do not delay Close, also if the peer
// is gone.
func TestWorkerClose_WithoutFlush(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("both ends are one worker")
		}
		p.Connect().Warm()
		for i := range 30 {
			require.NoError(t, p.Finish(p.A.EP.Put([]byte{1}, p.B.Mem.Addr()+uint64(i), p.A.Key, nil)))
		}
		require.NoError(t, errors.Join(p.B.W.Close(), p.B.Mem.Close(), p.B.Ctx.Close()))
		require.NoError(t, p.A.W.Close())
	})
}

// TestLaneBreaks_OneReason: operations that use the broken lane before the worker detects the reason fail with that
// reason, and so does the EP.
func TestLaneBreaks_OneReason(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect().Warm()
		idle(p)
		var reqs []*ucp.Request
		for i := range 20 { // more than fit into the queue of the lane
			r, err := p.A.EP.Put(testenv.Pattern(200, i), p.B.Mem.Addr(), p.A.Key, nil)
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		require.NotEmpty(t, reqs)
		lane := p.A.EP.Lane(0).EP.(*faketp.EP)
		lane.Fail(ucs.StatusTimedOut)
		if refused {
			_, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
			assert.ErrorIs(t, err, ucs.ErrTimedOut)
		} else {
			lane.Iface.Progress() // dispatches the pending queue
		}
		p.Until(func() bool { return p.A.EP.Err() != nil })
		assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrTimedOut)
		assert.NotErrorIs(t, p.A.EP.Err(), ucs.ErrConnReset)
		for _, r := range reqs {
			require.True(t, r.Done())
			assert.Equal(t, ucs.StatusTimedOut, r.Status())
			r.Release()
		}
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	}
}
