package ucp

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// fakePair is a pair over one fabric, which the test can inspect.
func fakePair(t testing.TB, cfg Config, kinds ...faketp.Kind) (*pair, *faketp.Fabric) {
	t.Helper()
	f := faketp.New(kinds...)
	set := tlsets.Set{Name: "fake", Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
	return newPair(t, set, cfg), f
}

// idle makes progress until there are no events any more and ifaces without connections are not polled.
func (p *pair) idle() {
	for quiet := 0; quiet < 2*engine.CooldownPolls; quiet++ {
		if p.step() > 0 {
			quiet = 0
		}
	}
}

func TestNewEP_SendsAndOpensNothing(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	p.idle()
	assert.Zero(t, f.EPsOpened, "transport endpoints")
	assert.Zero(t, f.Sent, "messages")
	assert.Nil(t, p.a.ep.link)

	require.NoError(t, p.finish(p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)))
	assert.True(t, p.a.ep.Connected())
	assert.Equal(t, 4, f.EPsOpened, "an rc and an auxiliary endpoint on each side")
}

func TestNewEP_FlushAndFenceOfAnUnusedEP(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	require.NoError(t, p.a.ep.Fence())
	r, err := p.a.ep.Flush()
	assert.Nil(t, r)
	assert.NoError(t, err)
	p.idle()
	assert.Zero(t, f.EPsOpened)
}

func TestConnect_Eager(t *testing.T) {
	p, f := fakePair(t, Config{Connect: ConnectEager}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	p.until(p.a.ep.Connected)
	p.idle()
	assert.Equal(t, 4, f.EPsOpened)
}

// TestProgress_IdleIfacesAreNotPolled: after the handshake neither side polls the auxiliary transport, and a message to
// it still arrives.
func TestProgress_IdleIfacesAreNotPolled(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	assert.Zero(t, p.a.w.engine.Polled(), "nothing is connected")
	p.connect().warm()
	p.idle()
	require.Equal(t, 1, p.a.w.engine.Polled())
	require.Equal(t, 1, p.b.w.engine.Polled())
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
		p.step()
	}
	assert.Equal(t, before, polls())

	other, err := p.b.w.NewEP(p.a.w.Address(), EPConfig{})
	require.NoError(t, err)
	key, err := other.Unpack(p.a.mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	require.NoError(t, p.finish(other.Put([]byte{3}, p.a.mem.Addr(), key, nil)))
	require.NoError(t, p.finish(other.Flush()))
	assert.Equal(t, byte(3), p.a.mem.Bytes()[0])
}

func TestProgress_IdleSwitch(t *testing.T) {
	p, _ := fakePair(t, Config{Study: Study{ProgressIdle: true}}, faketp.LikeRC(), faketp.LikeUD())
	assert.Equal(t, 2, p.a.w.engine.Polled())
	p.connect().warm()
	p.idle()
	assert.Equal(t, 2, p.a.w.engine.Polled())
}

func TestKeyResolve_AtOp(t *testing.T) {
	p, _ := fakePair(t, Config{Study: Study{KeyResolve: ResolveAtOp}}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	ep, key, addr := p.a.ep, p.a.key, p.b.mem.Addr()
	late := (*lateKey)(key)
	unbound := func() {
		t.Helper()
		assert.Same(t, late, key.put, "looks up the lane")
		assert.Same(t, late, key.get)
		assert.Same(t, late, key.amo)
	}
	unbound()
	before := inUse(p.a.w)
	require.NoError(t, p.finish(ep.Put([]byte{4}, addr, key, nil)))
	assert.Equal(t, before, inUse(p.a.w), "a short put takes no request, however the key is resolved")
	unbound()
	require.NoError(t, p.finish(ep.Put(pattern(200, 1), addr, key, nil)))
	require.NoError(t, p.finish(ep.Put(pattern(5000, 1), addr, key, nil)))
	unbound()
	got := make([]byte, 200)
	require.NoError(t, p.finish(ep.Get(got, addr, key, nil)))
	requireBytes(t, pattern(200, 1), got)
	unbound()
	old, result := binary.LittleEndian.Uint64(p.b.mem.Bytes()[8:]), new(uint64)
	require.NoError(t, ep.AtomicPost(uct.AtomicAdd, 8, 1, addr+8, key))
	require.NoError(t, p.finish(ep.AtomicFetch(uct.AtomicAdd, 8, 1, result, addr+8, key)))
	assert.Equal(t, old+1, *result)
	require.NoError(t, p.finish(ep.AtomicCSwap(8, old+2, 7, result, addr+8, key)))
	assert.Equal(t, old+2, *result)
	require.NoError(t, p.finish(ep.AtomicFetch(uct.AtomicXor, 4, 1, result, addr+8, key)), "emulated")
	unbound()
	require.NoError(t, ep.Fence())
	require.NoError(t, p.finish(ep.Put([]byte{4}, addr, key, nil)))
	require.NoError(t, p.flush())
	assert.Equal(t, byte(4), p.b.mem.Bytes()[0])
	assert.Equal(t, uint64(6), binary.LittleEndian.Uint64(p.b.mem.Bytes()[8:]))
	_, err := ep.Put(make([]byte, 5000), addr+memLen, key, nil)
	assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
}

// TestConnect_BothSidesAtOnce: two EPs that connect at the same time become one connection.
func TestConnect_BothSidesAtOnce(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.both()
	ra, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	rb, err := p.b.ep.Put([]byte{2}, p.a.mem.Addr(), p.b.key, nil)
	require.NoError(t, err)
	require.NoError(t, p.finish(ra, nil))
	require.NoError(t, p.finish(rb, nil))
	p.idle()
	assert.Equal(t, 4, f.EPsOpened, "one rc endpoint on each side, and the auxiliary ones")
	assert.Equal(t, 1, p.a.w.eps.Len())
	assert.Equal(t, 1, p.b.w.eps.Len())
}

// TestNewEP_AdoptsThePeersConnection: an EP to a worker that has connected already opens no transport endpoint.
func TestNewEP_AdoptsThePeersConnection(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	p.idle()
	before := f.EPsOpened
	p.b.dial(t, &p.a)
	require.NoError(t, p.finish(p.b.ep.Put([]byte{7}, p.a.mem.Addr(), p.b.key, nil)))
	require.NoError(t, p.finish(p.b.ep.Flush()))
	assert.Equal(t, byte(7), p.a.mem.Bytes()[0])
	assert.Equal(t, before, f.EPsOpened)
	assert.Equal(t, 1, p.b.w.eps.Len())
}

// TestNewEP_AdoptedAndClosedByThePeer: an EP that has adopted the connection of the peer, and was not used, does not
// fail when the peer closes its EP.
func TestNewEP_AdoptedAndClosedByThePeer(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	ep, err := p.b.w.NewEP(p.a.w.Address(), EPConfig{})
	require.NoError(t, err)
	require.NotNil(t, ep.link, "it is the peer's connection")
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	p.idle()
	require.NoError(t, ep.Err())
	assert.Nil(t, ep.link)
	key, err := ep.Unpack(p.a.mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	require.NoError(t, p.finish(ep.Put([]byte{6}, p.a.mem.Addr(), key, nil)))
	require.NoError(t, p.finish(ep.Flush()))
	assert.Equal(t, byte(6), p.a.mem.Bytes()[0])
}

func TestConnect_ToOneself(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.a.dial(t, &p.a)
		require.NoError(t, p.finish(p.a.ep.Put(pattern(3000, 1), p.a.mem.Addr(), p.a.key, nil)))
		require.NoError(t, p.flush())
		requireBytes(t, pattern(3000, 1), p.a.mem.Bytes()[:3000])
		assert.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		p.until(func() bool { return p.a.w.eps.Len() == 0 })
	})
}

func TestConnect_ManyEPsToOneWorker(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		for i := range 5 {
			p.a.dial(t, &p.b)
			require.NoError(t, p.finish(p.a.ep.Put([]byte{byte(i + 1)}, p.b.mem.Addr()+uint64(i), p.a.key, nil)))
			require.NoError(t, p.flush())
		}
		requireBytes(t, []byte{1, 2, 3, 4, 5}, p.b.mem.Bytes()[:5])
	})
}

// TestConnect_FallsBack: a lane that cannot connect is replaced by the next best.
func TestConnect_FallsBack(t *testing.T) {
	for _, what := range []string{"new ep frc", "connect frc"} {
		t.Run(what, func(t *testing.T) {
			slow := faketp.LikeTCP()
			slow.Latency = faketp.LikeRC().Latency * 10
			p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD(), slow)
			p.connect()
			f.FailNext(what, ucs.ErrNoMemory)
			require.NoError(t, p.finish(p.a.ep.Put(pattern(600, 1), p.b.mem.Addr(), p.a.key, nil)))
			require.NoError(t, p.flush())
			requireBytes(t, pattern(600, 1), p.b.mem.Bytes()[:600])
			assert.Equal(t, "ftcp", p.a.ep.lane(0).Iface.kind())
		})
	}
}

// TestConnect_FallsBackAfterTheDial: a lane whose transport fails to connect at the first post is replaced too. The
// operations that wait for it continue over the next lane, in order, and both sides report the failure.
func TestConnect_FallsBackAfterTheDial(t *testing.T) {
	dials, next := faketp.LikeSM(), faketp.LikeTCP()
	dials.Dials, next.Latency = true, time.Millisecond
	p, f := fakePair(t, Config{}, dials, next)
	p.connect()
	f.FailNext("dial fsm", ucs.ErrNoMemory)
	ep, key, addr := p.a.ep, p.a.key, p.b.mem.Addr()
	got := make([]byte, 600)
	var reqs []*Request
	add := func(r *Request, err error) {
		require.NoError(t, err)
		reqs = append(reqs, r)
	}
	add(ep.Put(pattern(600, 1), addr, key, nil))
	add(ep.Put(pattern(20, 2), addr+1000, key, nil))
	require.NoError(t, ep.Fence())
	add(ep.Get(got, addr, key, nil))
	require.NoError(t, ep.Fence())
	add(ep.Put(pattern(600, 3), addr, key, nil))
	add(ep.Flush())
	for _, r := range reqs {
		require.NoError(t, p.finish(r, nil))
	}
	requireBytes(t, pattern(600, 1), got)
	requireBytes(t, pattern(600, 3), p.b.mem.Bytes()[:600])
	requireBytes(t, pattern(20, 2), p.b.mem.Bytes()[1000:1020])
	assert.Equal(t, "ftcp", ep.lane(0).Iface.kind())
	assert.Contains(t, ep.Explain(), "failed transport: fsm fake0:1: fake: out of memory\n")
	assert.EqualValues(t, 1, counters(p.a.w)["worker.replaced_lanes"])
	assert.Zero(t, counters(p.a.w)["worker.failed_eps"])
}

// TestConnect_DeadPeerFailsAtOnce: if an error says that the peer is gone, the EP fails at once.
func TestConnect_DeadPeerFailsAtOnce(t *testing.T) {
	for _, why := range []error{ucs.ErrConnReset, ucs.ErrPeerClosed} {
		dials, next := faketp.LikeSM(), faketp.LikeTCP()
		dials.Dials, next.Latency = true, time.Millisecond
		p, f := fakePair(t, Config{}, dials, next)
		p.connect()
		f.FailNext("dial fsm", why)
		err := p.finish(p.a.ep.Put(pattern(600, 1), p.b.mem.Addr(), p.a.key, nil))
		require.ErrorIs(t, err, why)
		assert.ErrorIs(t, err, ucs.ErrEPFailed)
		requireOneLine(t, err, "put 600 bytes to worker 0x")
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	}
}

func (i *iface) kind() string { return i.attr.Resource.Transport }

func TestConnect_AllTransportsFail(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	var reported error
	ep, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{OnError: func(_ *EP, err error) { reported = err }})
	require.NoError(t, err)
	key, err := ep.Unpack(p.b.mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	f.FailNext("connect frc", ucs.ErrNoMemory)
	assert.ErrorIs(t, p.finish(ep.Put([]byte{1}, p.b.mem.Addr(), key, nil)), ucs.ErrNoMemory)
	assert.ErrorIs(t, ep.Err(), ucs.ErrEPFailed)
	assert.ErrorIs(t, ep.Err(), ucs.ErrNoMemory)
	assert.Equal(t, ep.Err(), reported)
	_, err = ep.Put([]byte{1}, p.b.mem.Addr(), key, nil)
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
	assert.NoError(t, p.finish(ep.Close(CloseFlush)))
	p.idle()
	assert.Zero(t, p.b.w.eps.Len(), "the peer was notified")
}

func TestClose_FlushCompletesOperations(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		r, err := p.a.ep.Put(pattern(9000, 3), p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		c, err := p.a.ep.Close(CloseFlush)
		require.NoError(t, err)
		_, err = p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
		assert.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.a.ep.Close(CloseFlush)
		assert.ErrorIs(t, err, ucs.ErrClosed)
		require.NoError(t, p.finish(c, nil))
		require.NoError(t, p.finish(r, nil))
		requireBytes(t, pattern(9000, 3), p.b.mem.Bytes()[:9000])
		p.until(func() bool { return p.a.w.eps.Len() == 0 && p.b.w.eps.Len() == 0 }) // the EP of the peer has closed too
		assert.Zero(t, p.a.w.peers.Len())
		_, err = p.a.ep.Unpack(p.b.mem.Pack())
		assert.ErrorIs(t, err, ucs.ErrClosed)
	})
}

func TestClose_ForceCancelsOperations(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		r, err := p.a.ep.Get(make([]byte, 9000), p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		f, err := p.a.ep.Flush()
		require.NoError(t, err)
		c, err := p.a.ep.Close(CloseForce)
		require.NoError(t, err)
		assert.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
		assert.ErrorIs(t, p.finish(f, nil), ucs.ErrCanceled)
		require.NoError(t, p.finish(c, nil))
	})
}

func TestClose_NotifiesThePeer(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.both()
	p.warm()
	require.NoError(t, p.finish(p.b.ep.Put([]byte{1}, p.a.mem.Addr(), p.b.key, nil)))
	require.NoError(t, p.finish(p.b.ep.Close(CloseFlush)))
	p.until(func() bool { return p.a.ep.Err() != nil })
	assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrPeerClosed)
	assert.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
}

// TestPeerDies: each operation of the EP fails, in any state.
func TestPeerDies(t *testing.T) {
	for _, connected := range []bool{false, true} {
		p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		if connected {
			p.warm()
		}
		var reqs []*Request
		add := func(r *Request, err error) {
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		for i := range 20 {
			add(p.a.ep.Put(pattern(5000, i), p.b.mem.Addr(), p.a.key, nil))
			add(p.a.ep.Get(make([]byte, 5000), p.b.mem.Addr(), p.a.key, nil))
			add(p.a.ep.AtomicFetch(uct.AtomicOr, 4, 1, new(uint64), p.b.mem.Addr(), p.a.key))
			require.NoError(t, p.a.ep.Fence())
		}
		add(p.a.ep.Flush())
		add(p.a.w.Flush())
		for _, i := range f.Ifaces[2:] { // b's
			i.Kill()
		}
		for _, r := range reqs {
			for range 1000 {
				p.a.w.Progress()
			}
			require.True(t, r.Done())
			assert.ErrorIs(t, p.finish(r, nil), ucs.ErrConnReset)
		}
		assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrConnReset)
		assert.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	}
}

func TestWorkerClose_WithWorkInFlight(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.both()
		p.warm()
		var reqs []*Request
		for i := range 20 {
			r, err := p.a.ep.Put(pattern(5000, i), p.b.mem.Addr(), p.a.key, nil)
			require.NoError(t, err)
			g, err := p.a.ep.AtomicFetch(uct.AtomicXor, 4, 1, new(uint64), p.b.mem.Addr(), p.a.key)
			require.NoError(t, err)
			reqs = append(reqs, r, g)
		}
		require.NoError(t, p.a.w.Close())
		require.NoError(t, p.a.w.Close(), "idempotent")
		for _, r := range reqs {
			if r != nil {
				require.True(t, r.Done())
				if r.Status() != ucs.StatusOK {
					assert.Equal(t, ucs.StatusCanceled, r.Status())
				}
				r.Release()
			}
		}
		_, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
		assert.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		assert.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.a.w.Flush()
		assert.ErrorIs(t, err, ucs.ErrClosed)
		assert.ErrorIs(t, p.a.w.Fence(), ucs.ErrClosed)
		assert.ErrorIs(t, p.a.w.Serve(context.Background()), ucs.ErrClosed)
		p.until(func() bool { return p.b.ep.Err() != nil || p.b.ep.link == nil })
	})
}

func TestContext_CloseWithOpenWorker(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	err := p.a.ctx.Close()
	assert.ErrorIs(t, err, ucs.ErrBusy)
	assert.EqualError(t, err, "ucp: close context: device is busy: close its workers first (open: 1)")
	c, err := NewContext(Config{}, faketp.New(faketp.LikeSM()))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "idempotent")
	_, err = c.NewWorker(WorkerConfig{})
	assert.ErrorIs(t, err, ucs.ErrClosed)
	_, err = c.MemAlloc(10)
	assert.ErrorIs(t, err, ucs.ErrClosed)
	assert.ErrorContains(t, err, "ucp: register memory")
}

func TestNewEP_Errors(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	for _, addr := range [][]byte{nil, []byte("garbage"), p.b.w.Address()[:20]} {
		_, err := p.a.w.NewEP(addr, EPConfig{})
		assert.ErrorIs(t, err, ucs.ErrInvalidAddr)
	}
	far := faketp.LikeRC()
	far.Device = "elsewhere"
	q, _ := fakePair(t, Config{}, far)
	_, err := p.a.w.NewEP(q.b.w.Address(), EPConfig{})
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.ErrorContains(t, err, "unreachable: another fabric")
	assert.Zero(t, p.a.w.peers.Len(), "an unreachable peer is not stored")
}

// TestReceive_MalformedHandshake: malformed handshake messages do not affect a connection, and the worker stores nothing
// for them.
func TestReceive_MalformedHandshake(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	for _, b := range [][]byte{nil, []byte("X"), make([]byte, 100), make([]byte, 20000)} {
		p.a.w.handleWireup(b, nil)
		p.a.w.handleRequest(b, nil)
		p.a.w.handleAnswer(b, nil)
	}
	p.a.w.handleRequest(make([]byte, wire.RequestLen), nil)
	p.a.w.handleAnswer(make([]byte, wire.AnswerLen), nil)
	p.idle()
	assert.Positive(t, p.a.w.stats.badMessages.Load())
	require.NoError(t, p.finish(p.a.ep.Put([]byte{8}, p.b.mem.Addr(), p.a.key, nil)))
	require.NoError(t, p.flush())
}

func TestNewContext_Selection(t *testing.T) {
	comp := func() uct.Component { return faketp.New(faketp.LikeRC(), faketp.LikeUD(), faketp.LikeSM()) }
	names := func(t *testing.T, cfg Config) []string {
		c, err := NewContext(cfg, comp())
		require.NoError(t, err)
		w, err := c.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		defer func() { assert.NoError(t, errors.Join(w.Close(), c.Close())) }()
		var out []string
		for i, r := range w.net.addr.Resources {
			name := r.Transport
			if r.AuxOnly {
				name += ":aux"
			}
			assert.Equal(t, i, w.ifaces[i].index)
			out = append(out, name)
		}
		return out
	}
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"all", Config{}, "frc fud fsm"},
		{"one that needs nothing", Config{TLS: config.Allow("fsm")}, "fsm"},
		{"one that needs a handshake", Config{TLS: config.Allow("frc")}, "frc fud:aux"},
		{"shared memory reaches no other host", Config{TLS: config.Allow("frc", "fsm")}, "frc fsm fud:aux"},
		{"all but one", Config{TLS: config.Deny("fud")}, "frc fsm fud:aux"},
		{"all of a component", Config{TLS: config.Allow("fake")}, "frc fud fsm"},
		{"shared memory", Config{TLS: config.Allow("shm")}, "fsm"},
		{"no shared memory", Config{TLS: config.Deny("shm")}, "frc fud"},
		{"by device", Config{NetDevices: config.Allow("fake0:1")}, "frc fud fsm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, strings.Fields(tc.want), names(t, tc.cfg))
		})
	}
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"unknown transport", Config{TLS: config.Allow("rc", "fsm")}, "transport rc not found (available: frc, fsm, fud)"},
		{"unknown device", Config{NetDevices: config.Allow("mlx5_0:1")}, "net device mlx5_0:1 not found (available: fake0:1)"},
		{"unknown shm device", Config{ShmDevices: config.Allow("memory")}, "shm device memory not found (available: fake0:1)"},
		{"excluded by device", Config{TLS: config.Allow("frc"), NetDevices: config.Deny("fake0:1")}, "transport frc: frc/fake0:1: NET_DEVICES=^fake0:1 excludes fake0:1"},
		{"unknown self device", Config{SelfDevices: config.Allow("memory")}, "self device memory not found (available: none)"},
		{"alias excluded by device", Config{TLS: config.Allow("shm", "frc"), ShmDevices: config.Deny("fake0:1")}, "transport shm: fsm/fake0:1: SHM_DEVICES=^fake0:1 excludes fake0:1"},
		{"nothing left", Config{TLS: config.Deny("frc", "fud", "fsm")}, "no transport is left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewContext(tc.cfg, comp())
			assert.ErrorIs(t, err, ucs.ErrUnreachable)
			assert.ErrorContains(t, err, tc.want)
		})
	}
	_, err := NewContext(Config{Connect: "sometimes"}, comp())
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = NewContext(Config{}, brokenComponent{})
	assert.ErrorContains(t, err, "no transport is left")
	assert.ErrorContains(t, err, "no device today", "the error has the cause")
	_, err = NewContext(Config{TLS: config.Allow("frc")}, brokenComponent{})
	assert.ErrorContains(t, err, "no device today", "the error has the cause")
}

type brokenComponent struct{}

func (brokenComponent) Name() string                   { return "broken" }
func (brokenComponent) MDs() ([]uct.MDResource, error) { return nil, errors.New("no device today") }
func (brokenComponent) OpenMD(string) (uct.MD, error)  { return nil, ucs.ErrInternal }

func TestConfig_FromEnvironment(t *testing.T) {
	var cfg Config
	require.NoError(t, config.FromEnv([]string{
		"GUCX_TLS=rc,ud", "GUCX_NET_DEVICES=^eth0", "GUCX_CONNECT=eager", "GUCX_STUDY_KEY_RESOLVE=op",
		"GUCX_STUDY_PROGRESS_IDLE=y", "GUCX_ZCOPY_THRESH=100",
	}, cfg.Table()))
	assert.Equal(t, Config{
		TLS: config.Allow("rc", "ud"), NetDevices: config.Deny("eth0"), Connect: ConnectEager,
		Study: Study{KeyResolve: ResolveAtOp, ProgressIdle: true}, ZcopyThresh: 100,
	}, cfg)
	assert.Error(t, config.FromEnv([]string{"GUCX_CONNECT=never"}, cfg.Table()))
	assert.Error(t, config.FromEnv([]string{"GUCX_ZCOPY_THRESH=-1"}, cfg.Table()))
}

// TestWorkerClose_WithoutFlush: short puts that were executed without a completion do not delay Close, also if the peer
// is gone.
func TestWorkerClose_WithoutFlush(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("both ends are one worker")
		}
		p.connect().warm()
		for i := range 30 {
			require.NoError(t, p.finish(p.a.ep.Put([]byte{1}, p.b.mem.Addr()+uint64(i), p.a.key, nil)))
		}
		require.NoError(t, errors.Join(p.b.w.Close(), p.b.mem.Close(), p.b.ctx.Close()))
		require.NoError(t, p.a.w.Close())
	})
}

// TestLaneBreaks_OneReason: operations that use the broken lane before the worker detects the reason fail with that
// reason, and so does the EP.
func TestLaneBreaks_OneReason(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.connect().warm()
		p.idle()
		var reqs []*Request
		for i := range 20 { // more than fit into the queue of the lane
			r, err := p.a.ep.Put(pattern(200, i), p.b.mem.Addr(), p.a.key, nil)
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		require.NotEmpty(t, reqs)
		lane := p.a.ep.lane(0).EP.(*faketp.EP)
		lane.Fail(ucs.StatusTimedOut)
		if refused {
			_, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
			assert.ErrorIs(t, err, ucs.ErrTimedOut)
		} else {
			lane.Iface.Progress() // dispatches the pending queue
		}
		p.until(func() bool { return p.a.ep.Err() != nil })
		assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrTimedOut)
		assert.NotErrorIs(t, p.a.ep.Err(), ucs.ErrConnReset)
		for _, r := range reqs {
			require.True(t, r.Done())
			assert.Equal(t, ucs.StatusTimedOut, r.Status())
			r.Release()
		}
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	}
}
