package ucp

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// ask makes a worker send a REQUEST to a with a new id, for the given lane, and nothing more.
func (p *pair) ask(from *Worker, i int, lane handshake.MsgLane) {
	p.t.Helper()
	lane.Roles = handshake.Set(wireup.RMA)
	m := &handshake.Msg{Type: handshake.Request, Seq: uint32(i), SrcUUID: from.net.addr.UUID(), DstUUID: p.a.w.net.addr.UUID(),
		SrcEP: uint64(1 + i), Addr: from.net.packed, Lanes: []handshake.MsgLane{lane}}
	p.a.w.handleWireup(from.sealed(p.a.w, m), nil)
	p.step()
}

// TestHalfOpen_TimeOut: half-open connections, which untrusted peers request and never complete, are limited, and time
// out.
func TestHalfOpen_TimeOut(t *testing.T) {
	testenv.SkipRace(t, "one goroutine, and some thousand handshakes")
	for _, tc := range []struct {
		name string
		lane handshake.MsgLane
	}{
		{"refused", handshake.MsgLane{Src: 63, Dst: 63}},
		{"accepted", handshake.MsgLane{EPAddr: []byte{2, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, n = 5 * time.Second, 2*conn.MaxHalfOpen + 10
				p, _ := fakePair(t, Config{WireupTimeout: limit}, faketp.LikeRC(), faketp.LikeUD())
				var from [10]*Worker
				for i := range from {
					from[i] = p.third(p.b.ctx)
				}
				for i := range n {
					p.ask(from[i%len(from)], i, tc.lane)
				}
				most := p.a.w.eps.Len()
				assert.Less(t, most, conn.MaxHalfOpen, "the limit of one host is lower")
				stats := counters(p.a.w)
				assert.EqualValues(t, n-most, stats["worker.refused_peers"])

				p.connect().warm() // others can connect
				p.b.dial(t, &p.a)
				sleepWith(limit+time.Second, &p.a, &p.b)
				p.idle()
				assert.Equal(t, 1, p.a.w.eps.Len(), "the one that is used")
				assert.Zero(t, p.a.w.connecting.halfOpen.Len())
				assert.Equal(t, 1, p.a.w.peers.Len())
				numbered, called := p.a.w.names.Len()
				assert.LessOrEqual(t, numbered+called, 2)
				assert.EqualValues(t, most, counters(p.a.w)["worker.expired_eps"])
				assert.NoError(t, p.finish(p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)))
			})
		})
	}
}

// TestHalfOpen_OthersConnectLater: if more connections are requested at a time than may be half open, the others connect
// as soon as the first ones have connected, not at the next retransmission.
func TestHalfOpen_OthersConnectLater(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	synctest.Test(t, func(t *testing.T) { // no time passes, so there are no retransmissions
		const n = conn.MaxHalfOpen + 200
		p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		f.Ifaces[1].Stuck = true // a sends no replies
		var reqs []*Request
		for range n {
			x := end{w: p.b.w}
			x.dial(t, &p.a)
			r, err := x.ep.Put([]byte{1}, x.key.Addr(), x.key, nil)
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		refused := func() int { return int(counters(p.a.w)["worker.refused_peers"]) }
		for range n {
			p.step()
		}
		most := p.a.w.eps.Len()
		require.Less(t, most, conn.MaxHalfOpen)
		require.Equal(t, n-most, refused())
		f.Ifaces[1].Stuck = false
		for range 10 * n {
			if p.step(); !slices.ContainsFunc(reqs, func(r *Request) bool { return !r.Done() }) {
				break
			}
		}
		for _, r := range reqs {
			require.True(t, r.Done())
			require.NoError(t, p.finish(r, nil))
		}
		require.True(t, p.a.w.connecting.late.Empty())
		require.Equal(t, n-most, refused(), "each once")
	})
}

// flood requests n connections that do not connect, for n workers of one host.
func (p *pair) flood(n, workers int) {
	p.t.Helper()
	from := make([]*Worker, workers)
	for i := range from {
		from[i] = p.third(p.b.ctx)
	}
	for i := range n {
		p.ask(from[i%workers], i, handshake.MsgLane{EPAddr: []byte{2, 0}})
	}
}

// TestHalfOpen_OthersConnect: while a worker requests more connections than it may have half open, another worker of the
// same host connects at once.
func TestHalfOpen_OthersConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.flood(conn.MaxHalfOpen, 1)
		require.NotZero(t, counters(p.a.w)["worker.refused_peers"])
		p.b.dial(t, &p.a)
		require.NoError(t, p.finish(p.b.ep.Put([]byte{1}, p.a.mem.Addr(), p.b.key, nil)))
		assert.Zero(t, counters(p.a.w)["worker.evicted_eps"])
	})
}

// TestHalfOpen_EvictsOldest: half-open connections of many workers of a host are evicted for another worker of the
// host.
func TestHalfOpen_EvictsOldest(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.flood(conn.MaxHalfOpen, 8)
		most := p.a.w.connecting.halfOpen.Len()
		p.b.dial(t, &p.a)
		r, err := p.b.ep.Put([]byte{1}, p.a.mem.Addr(), p.b.key, nil)
		require.NoError(t, err)
		p.idle()
		require.False(t, r.Done())
		sleepWith(3*time.Second, &p.a, &p.b)
		require.NoError(t, p.finish(r, nil))
		assert.NotZero(t, counters(p.a.w)["worker.evicted_eps"])
		assert.LessOrEqual(t, p.a.w.connecting.halfOpen.Len(), most)
	})
}

// TestReceive_WrongSourceIsDropped: nothing is stored for a message of a connection whose source is not the
// peer.
func TestReceive_WrongSourceIsDropped(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.both().warm()
	require.NoError(t, p.finish(p.b.ep.Put([]byte{1}, p.a.mem.Addr(), p.b.key, nil)))
	p.idle()
	_, before := p.b.w.names.Len()
	for i := range 1000 {
		m := &handshake.Msg{Type: handshake.Reply, SrcUUID: p.a.w.net.addr.UUID(), DstUUID: p.b.w.net.addr.UUID(), SrcEP: uint64(1000 + i), DstEP: p.b.ep.id,
			Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA)}}}
		p.b.w.handleWireup(p.a.w.sealed(p.b.w, m), nil)
		p.b.w.Progress()
	}
	_, called := p.b.w.names.Len()
	assert.Equal(t, before, called)
	r, err := p.b.ep.Close(CloseForce)
	require.NoError(t, p.finish(r, err))
	p.idle()
	numbered, called := p.b.w.names.Len()
	assert.Zero(t, numbered+called)
}

// TestReplies_AreLimited: the EP of a peer that requests atomics and does not read replies fails, and the waiting
// replies are released.
func TestReplies_AreLimited(t *testing.T) {
	testenv.SkipRace(t, "one goroutine, and some thousand requests")
	p, f := fakePair(t, Config{}, faketp.LikeTCP())
	p.connect().warm()
	eps := slices.Collect(p.b.w.eps.All())
	require.Len(t, eps, 1)
	e := eps[0]
	le := binary.LittleEndian
	m := make([]byte, wire.RequestLen)
	m[0], m[1] = byte(uct.AtomicAdd), 8
	le.PutUint64(m[8:], e.id)
	le.PutUint64(m[24:], regionOf(t, p.b.mem))
	le.PutUint64(m[32:], p.b.mem.Addr())
	before := inUse(p.b.w)
	for _, i := range f.Ifaces {
		i.Stuck = true
	}
	for range 2 * conn.MaxReplies {
		p.b.w.handleRequest(m, nil)
		p.b.w.Progress()
		require.LessOrEqual(t, inUse(p.b.w), before+conn.MaxReplies)
	}
	assert.Equal(t, before, inUse(p.b.w))
	assert.ErrorIs(t, e.failed.err, ucs.ErrRNR)
	assert.EqualValues(t, 1, counters(p.b.w)["worker.failed_eps"])
	for _, i := range f.Ifaces {
		i.Stuck = false
	}
	p.until(func() bool { return p.b.w.eps.Len() == 0 })
}

// TestMaxEPsPerPeer: a worker with the maximum number of EPs is rejected, and the error names the setting. Another
// worker connects, and the first one connects again after it has closed an EP.
func TestMaxEPsPerPeer(t *testing.T) {
	const most = 5
	for _, set := range []tlsets.Set{faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"), tlsets.Real("rc", "rc")} {
		t.Run(set.Name, func(t *testing.T) {
			p := newPair(t, set, Config{MaxEPsPerPeer: most})
			var eps []*EP
			dial := func() error {
				ep, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
				require.NoError(t, err)
				eps = append(eps, ep)
				return p.finish(ep.TagSendSync(exact, []byte{1}, nil))
			}
			var bufs [most + 2][1]byte
			for i := range bufs { // receives, so that the sends complete
				r, err := p.b.w.TagRecv(bufs[i][:], exact, exact, nil, nil)
				require.NoError(t, err)
				r.Release()
			}
			for range most {
				require.NoError(t, dial())
			}
			err := dial()
			require.ErrorIs(t, err, ucs.ErrRejected)
			require.ErrorContains(t, err, "MAX_EPS_PER_PEER")
			assert.EqualValues(t, 1, counters(p.b.w)["worker.rejected_eps"])
			_, err = p.dialTo(p.b.listen(t, "unix", abstractName(), ListenConfig{}), DialConfig{})
			require.ErrorIs(t, err, ucs.ErrRejected, "and by a listener")

			c := p.third(p.a.ctx)
			ep, err := c.NewEP(p.b.w.Address(), EPConfig{})
			require.NoError(t, err)
			r, err := ep.TagSendSync(exact, []byte{1}, nil)
			require.NoError(t, err)
			p.until(func() bool { c.Progress(); return r == nil || r.Done() })
			if r != nil {
				require.NoError(t, p.finish(r, nil))
			}

			made := p.b.w.eps.Len()
			require.NoError(t, p.finish(eps[0].Close(CloseFlush)))
			p.until(func() bool { return p.b.w.eps.Len() < made })
			require.NoError(t, dial())
		})
	}
}
