package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/tcp"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

const putScheme = "put_zcopy"

// stripedTCP uses separate connections for parts of each large put.
func stripedTCP() tlsets.Set {
	set := tlsets.Real("striped tcp", "tcp")
	set.Open = func(testing.TB) (a, b []uct.Component) {
		c := all.Config{TCP: tcp.Config{ConnsPerPeer: 3, SendvThresh: 1, StripeThresh: 16 << 10}}
		return c.Components(), c.Components()
	}
	return set
}

// TestRndvPut_CompletesWithoutSender: the receive completes without further progress of the sender.
func TestRndvPut_CompletesWithoutSender(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", "xrc"} {
		t.Run(tls, func(t *testing.T) {
			p := newRndvPair(t, tlsets.Real(tls, tls), putScheme)
			first := p.send(tlsets.LongMessage, 0) // both sides have their lanes
			require.NoError(t, p.Finish(p.recv(p.announcement(), p.to.Bytes()), nil))
			require.NoError(t, p.Finish(first, nil))
			sent := p.send(tlsets.LongMessage, 1)
			recv := p.recv(p.announcement(), p.to.Bytes())
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				p.A.W.Progress()
				return sent.Done() || sent.Delegated()
			})
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool { // without a call of the sender
				p.B.W.Progress()
				return recv.Done()
			})
			require.NoError(t, p.Finish(recv, nil))
			testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
			require.NoError(t, p.Finish(sent, nil))
		})
	}
}

// TestRndvPut_CompletesAfterData: when a receive completes, its data has arrived. Many messages are in flight, and resources
// are short.
func TestRndvPut_CompletesAfterData(t *testing.T) {
	for _, set := range append(faketp.AllSets(), stripedTCP()) {
		set.Run(t, func(t *testing.T) {
			const n, size = 32, 40_000
			p := ucppair.New(t, set, ucp.Config{RndvScheme: putScheme, RndvThresh: 1})
			from, to := memOf(t, &p.A, n*size), memOf(t, &p.B, n*size)
			copy(from.Bytes(), testenv.Pattern(n*size, 3))
			p.Connect()
			var sent, recv [n]*ucp.Request
			for i := range n {
				r, err := p.B.W.TagRecv(to.Bytes()[i*size:][:size], uint64(i), ^uint64(0), nil, &ucp.OpParams{Mem: to})
				require.NoError(t, err)
				recv[i] = r
			}
			for i := range n {
				params := &ucp.OpParams{Mem: from}
				if i%2 == 0 {
					params = nil
				}
				r, err := p.A.EP.TagSend(uint64(i), from.Bytes()[i*size:][:size], params)
				require.NoError(t, err)
				sent[i] = r
			}
			seen := [n]bool{}
			for left := n; left > 0; {
				p.Until(func() bool { return anyDone(recv[:], seen[:]) })
				for i, r := range recv {
					if r.Done() && !seen[i] {
						seen[i] = true
						left--
						testenv.RequireBytes(t, from.Bytes()[i*size:][:size], to.Bytes()[i*size:][:size])
					}
				}
			}
			for i := range n {
				require.NoError(t, p.Finish(recv[i], nil))
				require.NoError(t, p.Finish(sent[i], nil))
			}
		})
	}
}

// anyDone reports whether a request has completed that was not seen.
func anyDone(reqs []*ucp.Request, seen []bool) bool {
	for i, r := range reqs {
		if r.Done() && !seen[i] {
			return true
		}
	}
	return false
}

// TestRndvPut_TargetRejects: the memory of a receive is closed, so the target rejects the put. The receive does not succeed.
func TestRndvPut_TargetRejects(t *testing.T) {
	failed := map[string]bool{} // by the name of a set that has run
	for _, set := range append(faketp.AllSets(), stripedTCP()) {
		if set.Oneself {
			continue // nothing checks the access
		}
		set.Run(t, func(t *testing.T) {
			failed[set.Name] = false
			p := newRndvPair(t, set, putScheme)
			p.Warm()
			sent := p.send(tlsets.LongMessage, 1)
			recv := p.recv(p.announcement(), p.to.Bytes())
			gone := memOf(t, &p.B, tlsets.LongMessage)
			rtr := wire.RTR{EP: p.A.EP.ID(), ID: sent.RemoteID(), Recv: recv.RemoteID(), Length: tlsets.LongMessage, Addr: gone.Addr(), Key: gone.Pack()}
			require.NoError(t, gone.Close())
			p.A.W.Handler(wire.AMRTR)(rtr.Append(nil), nil)
			err := p.Finish(sent, nil)
			idle(p.Pair)
			if recv.Done() && recv.Status() == ucs.StatusOK { // it was sent in fragments instead
				testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
			} else {
				require.Error(t, err)
				failed[set.Name] = true
			}
			recv.Release()
		})
	}
	for _, name := range []string{"like tcp", "like sm", "rc", "rc_mlx5", "tcp", "striped tcp"} {
		rejected, ran := failed[name]
		assert.True(t, rejected || !ran, "%s: the put was not rejected", name)
	}
}

// TestRndvPut_BreaksBetween: the lane breaks after the data was put and before PUT DONE is sent. The receive fails.
func TestRndvPut_BreaksBetween(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			set, put, armed := tlsets.Real(tls, tls), false, false
			plan := func(_ uct.EP, v uct.Variant, _ int) (f wrap.Fault) {
				if armed && put && v == uct.AMShort {
					f.Break = ucs.ErrTimedOut
				}
				put = put || armed && v == uct.PutZcopy
				return f
			}
			set.Open = func(testing.TB) (a, b []uct.Component) {
				return layered(tlsets.Components(all.Config{}), wrap.Faults(plan)), tlsets.Components(all.Config{})
			}
			p := newRndvPair(t, set, putScheme)
			p.Warm()
			sent := p.send(tlsets.LongMessage, 1)
			armed = true
			recv := p.recv(p.announcement(), p.to.Bytes())
			require.ErrorIs(t, p.Finish(sent, nil), ucs.ErrTimedOut)
			require.True(t, put)
			require.Error(t, p.Finish(recv, nil))
		})
	}
}

// TestRndvPut_LaneRejects: a lane that works rejects the data: both sides get the error.
func TestRndvPut_LaneRejects(t *testing.T) {
	set, armed := tlsets.Real("rc", `\rc`), false
	plan := func(_ uct.EP, v uct.Variant, _ int) (f wrap.Fault) {
		if armed && v == uct.PutZcopy {
			f.Refuse = ucs.ErrIO
		}
		return f
	}
	set.Open = func(testing.TB) (a, b []uct.Component) {
		return layered(tlsets.Components(all.Config{}), wrap.Faults(plan)), tlsets.Components(all.Config{})
	}
	p := newRndvPair(t, set, putScheme)
	p.Warm()
	armed = true
	sent := p.send(tlsets.LongMessage, 1)
	recv := p.recv(p.announcement(), p.to.Bytes())
	require.ErrorIs(t, p.Finish(sent, nil), ucs.ErrIO)
	require.ErrorIs(t, p.Finish(recv, nil), ucs.ErrIO)
	require.NoError(t, p.A.EP.Err())
}

// TestRndvPut_LaneReplaced: if the lane breaks after a part of the data was put, the put starts again over the next
// lane. Neither side gets an error.
func TestRndvPut_LaneReplaced(t *testing.T) {
	first, second := faketp.LikeRC(), likeRC2()
	first.Caps &^= uct.CapAM
	second.Caps &^= uct.CapAM
	for _, registered := range []bool{false, true} {
		t.Run(fmt.Sprintf("registered=%v", registered), func(t *testing.T) {
			cfg := ucp.Config{RndvScheme: putScheme, RndvThresh: 1}
			cfg.RCache.Enable = config.No
			p := ucppair.New(t, faketp.Set("two", first, second, faketp.LikeUD()), cfg).Connect().Warm()
			const n = 20 * faketp.MaxBcopy
			from, to := memOf(t, &p.A, n), memOf(t, &p.B, n)
			copy(from.Bytes(), testenv.Pattern(n, 1))
			params := (*ucp.OpParams)(nil)
			if registered {
				params = &ucp.OpParams{Mem: from}
			}
			recv, err := p.B.W.TagRecv(to.Bytes(), 1, ^uint64(0), nil, &ucp.OpParams{Mem: to})
			require.NoError(t, err)
			sent, err := p.A.EP.TagSend(1, from.Bytes(), params)
			require.NoError(t, err)
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				p.B.W.Progress()
				p.A.W.Progress()
				return sent.Delegated()
			})
			breakLane(p.A.EP, wireup.RMA, ucs.StatusIOError)
			require.NoError(t, p.Finish(sent, nil))
			require.NoError(t, p.Finish(recv, nil))
			testenv.RequireBytes(t, testenv.Pattern(n, 1), to.Bytes())
			assert.Positive(t, counters(p.A.W)["worker.repeated_transfers"])
			require.NoError(t, p.A.EP.Err())
		})
	}
}
