package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// requestFrom makes a worker send a REQUEST to a with a new id, for the given lane, and nothing more.
func requestFrom(p *ucppair.Pair, from *ucp.Worker, i int, lane handshake.MsgLane) {
	p.T.Helper()
	lane.Roles = handshake.Set(wireup.RMA)
	m := &handshake.Msg{Type: handshake.Request, Seq: uint32(i), SrcUUID: from.AddressInfo().UUID(), DstUUID: p.A.W.AddressInfo().UUID(),
		SrcEP: uint64(1 + i), Addr: from.Address(), Lanes: []handshake.MsgLane{lane}}
	p.A.W.Handler(wire.AMWireup)(seal(from, p.A.W, m), nil)
	p.Step()
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
				p, _ := ucppair.Fake(t, ucp.Config{WireupTimeout: limit}, faketp.LikeRC(), faketp.LikeUD())
				var from [10]*ucp.Worker
				for i := range from {
					from[i] = thirdWorker(p, p.B.Ctx)
				}
				for i := range n {
					requestFrom(p, from[i%len(from)], i, tc.lane)
				}
				most := p.A.W.EPs().Len()
				assert.Less(t, most, conn.MaxHalfOpen, "the limit of one host is lower")
				stats := counters(p.A.W)
				assert.EqualValues(t, n-most, stats["worker.refused_peers"])

				p.Connect().Warm() // others can connect
				p.B.Dial(t, &p.A)
				sleepWith(limit+time.Second, &p.A, &p.B)
				idle(p)
				assert.Equal(t, 1, p.A.W.EPs().Len(), "the one that is used")
				assert.Zero(t, p.A.W.HalfOpen().Len())
				assert.Equal(t, 1, p.A.W.Peers().Len())
				numbered, called := p.A.W.Names().Len()
				assert.LessOrEqual(t, numbered+called, 2)
				assert.EqualValues(t, most, counters(p.A.W)["worker.expired_eps"])
				assert.NoError(t, p.Finish(p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)))
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
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		f.Ifaces[1].Stuck = true // a sends no replies
		var reqs []*ucp.Request
		for range n {
			x := ucppair.End{W: p.B.W}
			x.Dial(t, &p.A)
			r, err := x.EP.Put([]byte{1}, x.Key.Addr(), x.Key, nil)
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		refused := func() int { return int(counters(p.A.W)["worker.refused_peers"]) }
		for range n {
			p.Step()
		}
		most := p.A.W.EPs().Len()
		require.Less(t, most, conn.MaxHalfOpen)
		require.Equal(t, n-most, refused())
		f.Ifaces[1].Stuck = false
		for range 10 * n {
			if p.Step(); !slices.ContainsFunc(reqs, func(r *ucp.Request) bool { return !r.Done() }) {
				break
			}
		}
		for _, r := range reqs {
			require.True(t, r.Done())
			require.NoError(t, p.Finish(r, nil))
		}
		require.True(t, p.A.W.Late().Empty())
		require.Equal(t, n-most, refused(), "each once")
	})
}

// flood requests n connections that do not connect, for n workers of one host.
func flood(p *ucppair.Pair, n, workers int) {
	p.T.Helper()
	from := make([]*ucp.Worker, workers)
	for i := range from {
		from[i] = thirdWorker(p, p.B.Ctx)
	}
	for i := range n {
		requestFrom(p, from[i%workers], i, handshake.MsgLane{EPAddr: []byte{2, 0}})
	}
}

// TestHalfOpen_OthersConnect: while a worker requests more connections than it may have half open, another worker of the
// same host connects at once.
func TestHalfOpen_OthersConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		flood(p, conn.MaxHalfOpen, 1)
		require.NotZero(t, counters(p.A.W)["worker.refused_peers"])
		p.B.Dial(t, &p.A)
		require.NoError(t, p.Finish(p.B.EP.Put([]byte{1}, p.A.Mem.Addr(), p.B.Key, nil)))
		assert.Zero(t, counters(p.A.W)["worker.evicted_eps"])
	})
}

// TestHalfOpen_EvictsOldest: half-open connections of many workers of a host are evicted for another worker of the
// host.
func TestHalfOpen_EvictsOldest(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	synctest.Test(t, func(t *testing.T) {
		p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		flood(p, conn.MaxHalfOpen, 8)
		most := p.A.W.HalfOpen().Len()
		p.B.Dial(t, &p.A)
		r, err := p.B.EP.Put([]byte{1}, p.A.Mem.Addr(), p.B.Key, nil)
		require.NoError(t, err)
		idle(p)
		require.False(t, r.Done())
		sleepWith(3*time.Second, &p.A, &p.B)
		require.NoError(t, p.Finish(r, nil))
		assert.NotZero(t, counters(p.A.W)["worker.evicted_eps"])
		assert.LessOrEqual(t, p.A.W.HalfOpen().Len(), most)
	})
}

// TestReceive_WrongSourceIsDropped: nothing is stored for a message of a connection whose source is not the
// peer.
func TestReceive_WrongSourceIsDropped(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Both().Warm()
	require.NoError(t, p.Finish(p.B.EP.Put([]byte{1}, p.A.Mem.Addr(), p.B.Key, nil)))
	idle(p)
	_, before := p.B.W.Names().Len()
	for i := range 1000 {
		m := &handshake.Msg{Type: handshake.Reply, SrcUUID: p.A.W.AddressInfo().UUID(), DstUUID: p.B.W.AddressInfo().UUID(), SrcEP: uint64(1000 + i), DstEP: p.B.EP.ID(),
			Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA)}}}
		p.B.W.Handler(wire.AMWireup)(seal(p.A.W, p.B.W, m), nil)
		p.B.W.Progress()
	}
	_, called := p.B.W.Names().Len()
	assert.Equal(t, before, called)
	r, err := p.B.EP.Close(ucp.CloseForce)
	require.NoError(t, p.Finish(r, err))
	idle(p)
	numbered, called := p.B.W.Names().Len()
	assert.Zero(t, numbered+called)
}

// TestReplies_AreLimited: the EP of a peer that requests atomics and does not read replies fails, and the waiting
// replies are released.
func TestReplies_AreLimited(t *testing.T) {
	testenv.SkipRace(t, "one goroutine, and some thousand requests")
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeTCP())
	p.Connect().Warm()
	eps := slices.Collect(p.B.W.EPs().All())
	require.Len(t, eps, 1)
	e := eps[0]
	le := binary.LittleEndian
	m := make([]byte, wire.RequestLen)
	m[0], m[1] = byte(uct.AtomicAdd), 8
	le.PutUint64(m[8:], e.ID())
	le.PutUint64(m[24:], regionOf(t, p.B.Mem))
	le.PutUint64(m[32:], p.B.Mem.Addr())
	before := ucp.RequestsInUse(p.B.W)
	for _, i := range f.Ifaces {
		i.Stuck = true
	}
	for range 2 * conn.MaxReplies {
		p.B.W.Handler(wire.AMRequest)(m, nil)
		p.B.W.Progress()
		require.LessOrEqual(t, ucp.RequestsInUse(p.B.W), before+conn.MaxReplies)
	}
	assert.Equal(t, before, ucp.RequestsInUse(p.B.W))
	assert.ErrorIs(t, e.FailedWith(), ucs.ErrRNR)
	assert.EqualValues(t, 1, counters(p.B.W)["worker.failed_eps"])
	for _, i := range f.Ifaces {
		i.Stuck = false
	}
	p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
}

// TestMaxEPsPerPeer: a worker with the maximum number of EPs is rejected, and the error names the setting. Another
// worker connects, and the first one connects again after it has closed an EP.
func TestMaxEPsPerPeer(t *testing.T) {
	const most = 5
	for _, set := range []tlsets.Set{faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"), tlsets.Real("rc", "rc")} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{MaxEPsPerPeer: most})
			var eps []*ucp.EP
			dial := func() error {
				ep, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
				require.NoError(t, err)
				eps = append(eps, ep)
				return p.Finish(ep.TagSendSync(exact, []byte{1}, nil))
			}
			var bufs [most + 2][1]byte
			for i := range bufs { // receives, so that the sends complete
				r, err := p.B.W.TagRecv(bufs[i][:], exact, exact, nil, nil)
				require.NoError(t, err)
				r.Release()
			}
			for range most {
				require.NoError(t, dial())
			}
			err := dial()
			require.ErrorIs(t, err, ucs.ErrRejected)
			require.ErrorContains(t, err, "MAX_EPS_PER_PEER")
			assert.EqualValues(t, 1, counters(p.B.W)["worker.rejected_eps"])
			_, err = dialTo(p, listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{}), ucp.DialConfig{})
			require.ErrorIs(t, err, ucs.ErrRejected, "and by a listener")

			c := thirdWorker(p, p.A.Ctx)
			ep, err := c.NewEP(p.B.W.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			r, err := ep.TagSendSync(exact, []byte{1}, nil)
			require.NoError(t, err)
			p.Until(func() bool { c.Progress(); return r == nil || r.Done() })
			if r != nil {
				require.NoError(t, p.Finish(r, nil))
			}

			made := p.B.W.EPs().Len()
			require.NoError(t, p.Finish(eps[0].Close(ucp.CloseFlush)))
			p.Until(func() bool { return p.B.W.EPs().Len() < made })
			require.NoError(t, dial())
		})
	}
}
