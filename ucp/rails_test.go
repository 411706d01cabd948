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
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

// twoFast are two devices, one three times as fast as the other.
func twoFast() []faketp.Kind {
	fast, slow := faketp.LikeRC(), faketp.LikeRC()
	fast.Bandwidth, slow.Bandwidth, slow.Device = 3<<30, 1<<30, "b"
	return []faketp.Kind{fast, slow, faketp.LikeUD()}
}

// railSets are transports of which two lanes share large transfers.
func railSets() []tlsets.Set {
	return []tlsets.Set{
		faketp.Set("fakes", twoFast()...),
		configured("tcp, two devices", twoDevices, "tcp"),
		tlsets.HCAs("rc, two devices", 2, `\rc`),
		tlsets.HCAs("rc_mlx5, two devices", 2, "rc_mlx5"),
	}
}

// railConfig makes lanes share large puts, gets and announced messages.
func railConfig() ucp.Config {
	return ucp.Config{MaxRMARails: 2, RndvThresh: 1}
}

// overRails runs a test over each set; each side has two lanes.
func overRails(t *testing.T, cfg ucp.Config, f func(t *testing.T, p *ucppair.Pair)) {
	for _, set := range railSets() {
		t.Run(set.Name, func(t *testing.T) { f(t, onRails(ucppair.New(t, set, cfg))) })
	}
}

// onRails connects both sides and waits until each has two lanes that share transfers.
func onRails(p *ucppair.Pair) *ucppair.Pair {
	p.T.Helper()
	p.Both()
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		require.NoError(p.T, p.Finish(x.EP.Put([]byte{1}, x.Key.Addr(), x.Key, nil)))
		require.NoError(p.T, p.Finish(x.EP.Flush()))
		p.Until(func() bool { return x.EP.SharedLanes() == 2 })
	}
	return p
}

// railLanes returns the lanes of a's EP that share transfers.
func railLanes(x *ucppair.End) []*ucp.Lane { return x.EP.RailLanes() }

// bytesCarried returns the number of bytes that each lane of fakes has put and got since the last call.
func bytesCarried(x *ucppair.End) (bytes []int) {
	for _, l := range railLanes(x) {
		i := l.EP.(*faketp.EP).Iface
		bytes, i.Moved = append(bytes, i.Moved), 0
	}
	return bytes
}

// TestRails_PutGet: puts and gets transfer the right data, in lengths around the threshold, from memory that is
// registered and not.
func TestRails_PutGet(t *testing.T) {
	overRails(t, railConfig(), func(t *testing.T, p *ucppair.Pair) {
		from := p.A.EP.SharedFrom()
		require.Greater(t, from, 1)
		for i, n := range []int{1, from - 1, from, from + 1, 40_001, tlsets.MemLen} {
			for _, zcopy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/zcopy=%v", n, zcopy), func(t *testing.T) {
					share := func(r *ucp.Request) { // not of operations that have completed at once
						assert.True(t, r == nil || (n >= from) == r.Shared(), "shared")
					}
					local, params := make([]byte, n), (*ucp.OpParams)(nil)
					if zcopy {
						local, params = p.A.Mem.Bytes()[:n], &ucp.OpParams{Mem: p.A.Mem}
					}
					clear(p.B.Mem.Bytes())
					copy(local, testenv.Pattern(n, i))
					r, err := p.A.EP.Put(local, p.A.Key.Addr(), p.A.Key, params)
					require.NoError(t, err)
					share(r)
					require.NoError(t, p.Finish(r, nil))
					require.NoError(t, p.Flush())
					testenv.RequireBytes(t, testenv.Pattern(n, i), p.B.Mem.Bytes()[:n])
					testenv.RequireZero(t, p.B.Mem.Bytes()[n:], "written past the end")
					clear(local)
					r, err = p.A.EP.Get(local, p.A.Key.Addr(), p.A.Key, params)
					require.NoError(t, err)
					share(r)
					require.NoError(t, p.Finish(r, nil))
					testenv.RequireBytes(t, testenv.Pattern(n, i), local)
				})
			}
		}
	})
}

// TestRails_Shares: the lanes share transfers in proportion to their bandwidth.
func TestRails_Shares(t *testing.T) {
	p := onRails(ucppair.New(t, faketp.Set("fakes", twoFast()...), railConfig()))
	bytesCarried(&p.A)
	require.NoError(t, p.Finish(p.A.EP.Put(p.A.Mem.Bytes(), p.A.Key.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem})))
	require.NoError(t, p.Flush())
	assert.Equal(t, []int{tlsets.MemLen * 3 / 4, tlsets.MemLen / 4}, bytesCarried(&p.A))
	text := p.A.EP.Explain()
	assert.Contains(t, text, "put, get of 32768 bytes or more: frc fake0:1 75% frc fake0:1b 25%\n")
	assert.Contains(t, text, "data of rendezvous messages of 65536 bytes or more: frc fake0:1 75% frc fake0:1b 25%\n")
}

// TestRails_ByDefault: only announced messages are shared. The first large one opens the second lane.
func TestRails_ByDefault(t *testing.T) {
	p := ucppair.New(t, faketp.Set("fakes", twoFast()...), ucp.Config{})
	p.Both()
	require.NoError(t, p.Finish(p.A.EP.Put(p.A.Mem.Bytes(), p.A.Key.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem})))
	require.NoError(t, p.Flush())
	assert.Zero(t, p.A.EP.SharedLanes())
	text := p.A.EP.Explain()
	assert.Contains(t, text, "put, get: never, MAX_RMA_RAILS=1\n")
	assert.Contains(t, text, "data of rendezvous messages of 65536 bytes or more: frc fake0:1 75% frc fake0:1b 25%\n")
	sendTagged(t, p, tlsets.MemLen, 1)
	p.Until(func() bool { return p.B.EP.Linked() && p.B.EP.SharedLanes() == 2 })
	bytesCarried(&p.B)
	sendTagged(t, p, tlsets.MemLen, 2)
	assert.Equal(t, []int{tlsets.MemLen * 3 / 4, tlsets.MemLen / 4}, bytesCarried(&p.B))
}

// sendTagged sends n bytes from a's memory to b's.
func sendTagged(t *testing.T, p *ucppair.Pair, n, seed int) {
	t.Helper()
	send, recv := startTagged(t, p, n, seed)
	require.NoError(t, p.Finish(send, nil))
	require.NoError(t, p.Finish(recv, nil))
	testenv.RequireBytes(t, testenv.Pattern(n, seed), p.B.Mem.Bytes()[:n])
}

func startTagged(t *testing.T, p *ucppair.Pair, n, seed int) (send, recv *ucp.Request) {
	t.Helper()
	clear(p.B.Mem.Bytes())
	copy(p.A.Mem.Bytes(), testenv.Pattern(n, seed))
	recv, err := p.B.W.TagRecv(p.B.Mem.Bytes()[:n], 1, exact, nil, &ucp.OpParams{Mem: p.B.Mem})
	require.NoError(t, err)
	send, err = p.A.EP.TagSend(1, p.A.Mem.Bytes()[:n], &ucp.OpParams{Mem: p.A.Mem})
	require.NoError(t, err)
	return send, recv
}

// TestRails_Messages: announced messages arrive completely, with each scheme.
func TestRails_Messages(t *testing.T) {
	for _, scheme := range tlsets.RndvSchemes {
		t.Run(scheme, func(t *testing.T) {
			cfg := railConfig()
			cfg.RndvScheme = scheme
			overRails(t, cfg, func(t *testing.T, p *ucppair.Pair) {
				for i, n := range []int{1, 8 << 10, 32 << 10, 50_001, tlsets.MemLen} {
					sendTagged(t, p, n, i)
				}
				require.NoError(t, p.Flush())
			})
		})
	}
}

// TestRails_WithinAHost: peers of a host do not share transfers between sm and tcp.
func TestRails_WithinAHost(t *testing.T) {
	set := configured("sm and tcp", func(testing.TB) func() []uct.Component { return all.Components }, "sm", "tcp")
	p := ucppair.New(t, set, railConfig())
	p.Both()
	for i := range 3 {
		sendTagged(t, p, tlsets.MemLen, i)
	}
	require.NoError(t, p.Flush())
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		assert.LessOrEqual(t, x.EP.SharedLanes(), 1)
		plan := x.EP.Handshake().Plan(wireup.RMABW)
		require.Len(t, plan, 1)
		assert.Equal(t, "sm", kindOf(x.W.Ifaces()[plan[0].Local]))
	}
}

// TestRails_Fence: operations after a fence take effect after shared transfers before it, and the other way round.
func TestRails_Fence(t *testing.T) {
	ways := []fenced{
		put("short", 8, false), put("shared", blockLen, true), put("shared copies", blockLen, false), add("post", uct.AtomicAdd, 8, false),
	}
	overRails(t, railConfig(), func(t *testing.T, p *ucppair.Pair) {
		for _, f := range []*fenceCase{{&p.A, &p.B}, {&p.B, &p.A}} {
			for _, first := range ways {
				for _, second := range ways {
					clear(f.to.Mem.Bytes()[:2*blockLen])
					for i := 1; i <= 3; i++ {
						checkFence(p, f, first, second, i)
					}
				}
			}
		}
	})
}

// freezeRail makes a lane of fakes stop to execute operations.
func freezeRail(x *ucppair.End, rail int) *faketp.EP {
	e := railLanes(x)[rail].EP.(*faketp.EP)
	e.Iface.Frozen = true
	return e
}

// TestRails_LaneBreaks: if a lane breaks while a part of a get is in flight over it, the part is repeated over the
// other lane. A put fails once with the reason, and so does one flush.
func TestRails_LaneBreaks(t *testing.T) {
	for rail := range 2 {
		for _, at := range []string{"here", "at the peer"} {
			t.Run(fmt.Sprintf("lane %d %s", rail, at), func(t *testing.T) {
				p := onRails(ucppair.New(t, faketp.Set("fakes", twoFast()...), railConfig()))
				copy(p.B.Mem.Bytes(), testenv.Pattern(tlsets.MemLen, 7))
				e := freezeRail(&p.A, rail)
				got := make([]byte, tlsets.MemLen/2)
				get, err := p.A.EP.Get(got, p.A.Key.Addr(), p.A.Key, nil)
				require.NoError(t, err)
				put, err := p.A.EP.Put(p.A.Mem.Bytes()[:tlsets.MemLen/2], p.A.Key.Addr()+tlsets.MemLen/2, p.A.Key, &ucp.OpParams{Mem: p.A.Mem})
				require.NoError(t, err)
				breakAt(p, at, e)
				for range 100 { // the handshake uses both
					p.A.W.Progress()
				}
				assert.Zero(t, counters(p.A.W)["worker.repeated_transfers"], "the peer has not closed the lane")
				require.NoError(t, p.Finish(get, nil))
				testenv.RequireBytes(t, testenv.Pattern(tlsets.MemLen, 7)[:len(got)], got)
				assert.ErrorIs(t, p.Finish(put, nil), ucs.ErrTimedOut)
				assert.Positive(t, counters(p.A.W)["worker.repeated_transfers"])
				assert.ErrorIs(t, p.Flush(), ucs.ErrTimedOut, "the flush reports it")
				require.NoError(t, p.Flush(), "once")
				require.NoError(t, p.A.EP.Err())
				assert.LessOrEqual(t, p.A.EP.SharedLanes(), 1)
				require.NoError(t, p.Finish(p.A.EP.Get(got, p.A.Key.Addr(), p.A.Key, nil)))
			})
		}
	}
}

// breakAt breaks a lane of a at one of its ends.
func breakAt(p *ucppair.Pair, at string, e *faketp.EP) {
	if at == "here" {
		e.Fail(ucs.StatusTimedOut)
		e.Iface.Frozen = false
		return
	}
	for _, x := range railLanes(&p.B) {
		if y := x.EP.(*faketp.EP); y.Iface == e.Peer {
			y.Fail(ucs.StatusTimedOut)
		}
	}
}

// TestRails_LaneBreaksUnderAMessage: the message arrives completely, with each scheme, and neither side gets an error.
// The lane is not the lane of messages, without which the EP fails.
func TestRails_LaneBreaksUnderAMessage(t *testing.T) {
	for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
		t.Run(scheme, func(t *testing.T) {
			cfg := railConfig()
			cfg.RndvScheme = scheme
			p := onRails(ucppair.New(t, faketp.Set("fakes", twoFast()...), cfg))
			mover := &p.B
			if scheme == "put_zcopy" {
				mover = &p.A
			}
			e := freezeRail(mover, 1)
			send, recv := startTagged(t, p, tlsets.MemLen, 5)
			p.Until(func() bool { return e.InFlight > 0 })
			e.Fail(ucs.StatusTimedOut)
			e.Iface.Frozen = false
			checkRepeated(t, p, mover, send, recv)
		})
	}
}

// checkRepeated checks that a message of memLen bytes arrives completely, after a part of it was repeated.
func checkRepeated(t *testing.T, p *ucppair.Pair, mover *ucppair.End, send, recv *ucp.Request) {
	t.Helper()
	require.NoError(t, p.Finish(send, nil))
	require.NoError(t, p.Finish(recv, nil))
	testenv.RequireBytes(t, testenv.Pattern(tlsets.MemLen, 5), p.B.Mem.Bytes())
	assert.Positive(t, counters(mover.W)["worker.repeated_transfers"])
	require.NoError(t, p.A.EP.Err())
	require.NoError(t, p.B.EP.Err())
}

// TestRails_LaneBreaksBeforeTheFlush: a lane has accepted its part of the data of a message, and breaks and loses it
// before the flush. The receive does not complete without the data.
func TestRails_LaneBreaksBeforeTheFlush(t *testing.T) {
	cfg := railConfig()
	cfg.RndvScheme = "put_zcopy"
	p := onRails(ucppair.New(t, faketp.Set("fakes", twoFast()...), cfg))
	send, recv := startTagged(t, p, tlsets.MemLen, 5)
	p.Until(func() bool { return recv.Fetches() })
	first, second := freezeRail(&p.A, 0), railLanes(&p.A)[1].EP.(*faketp.EP)
	second.Iface.Loses = true
	p.Until(func() bool { return second.Iface.Lost > 0 })
	second.Fail(ucs.StatusTimedOut)
	first.Iface.Frozen = false
	checkRepeated(t, p, &p.A, send, recv)
}

// TestRails_OneDomain: memory that is registered with one of two domains only uses the lane of that domain.
func TestRails_OneDomain(t *testing.T) {
	p := onRails(ucppair.New(t, tlsets.HCAs("rc, two devices", 2, `\rc`), railConfig()))
	buf := testenv.Pattern(tlsets.MemLen, 3)
	at := p.A.EP.Peer().Addr.Resources[p.A.EP.Lane(wireup.RMA).Remote].MD
	mem, err := p.B.Ctx.Memory().Domains[at].Register(buf, uct.AccessAll)
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	key, err := p.A.EP.Unpack(mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	r, err := p.A.EP.Get(p.A.Mem.Bytes(), key.Addr(), key, &ucp.OpParams{Mem: p.A.Mem})
	require.NoError(t, err)
	assert.True(t, r == nil || !r.Shared(), "shared")
	require.NoError(t, p.Finish(r, nil))
	testenv.RequireBytes(t, buf, p.A.Mem.Bytes())
}

// TestRails_LateError: a lane rejects its part of a get before its transport has reported that it broke.
func TestRails_LateError(t *testing.T) {
	p := onRails(ucppair.New(t, faketp.Set("fakes", twoFast()...), railConfig()))
	copy(p.B.Mem.Bytes(), testenv.Pattern(tlsets.MemLen, 4))
	e := railLanes(&p.A)[1].EP.(*faketp.EP)
	e.Status = ucs.StatusTimedOut
	e.Iface.Hook = func() {
		e.Iface.Hook = nil
		e.Iface.OnError(e, ucs.ErrTimedOut)
	}
	require.NoError(t, p.Finish(p.A.EP.Get(p.A.Mem.Bytes(), p.A.Key.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem})))
	testenv.RequireBytes(t, testenv.Pattern(tlsets.MemLen, 4), p.A.Mem.Bytes())
	assert.Positive(t, counters(p.A.W)["worker.repeated_transfers"])
	require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut, "the flush reports the lane")
	require.NoError(t, p.A.EP.Err())
}

// TestRails_SeparateLane: memory that is registered for several lanes is also accessible over the lane of single puts
// and gets, which is another one.
func TestRails_SeparateLane(t *testing.T) {
	cfg := railConfig()
	for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
		t.Run(scheme, func(t *testing.T) {
			cfg.RndvScheme = scheme
			set := configured("rc, three devices", nearAndFast, `\rc`)
			p := onRails(ucppair.New(t, set, cfg))
			alone := p.A.EP.Lane(wireup.RMA)
			require.NotContains(t, railLanes(&p.A), alone)
			require.Contains(t, p.A.EP.RailDomains(), alone.Iface.Domain())
			from := p.A.EP.SharedFrom()
			require.Greater(t, from, 10<<10)
			for i, n := range []int{10 << 10, tlsets.MemLen} {
				data, buf := testenv.Pattern(n, i), make([]byte, n)
				recv, err := p.B.W.TagRecv(buf, 1, exact, nil, nil)
				require.NoError(t, err)
				sent, err := p.A.EP.TagSend(1, data, nil)
				require.NoError(t, p.Finish(sent, err))
				require.NoError(t, p.Finish(recv, nil))
				testenv.RequireBytes(t, data, buf)
			}
		})
	}
}

// nearAndFast is a transport over a device of low latency and two of higher bandwidth.
func nearAndFast(t testing.TB) func() []uct.Component {
	open := tlsets.SoftHCAs(3)
	costs := map[string]uct.Cost{
		"softhca0:1": {Latency: 1000, Bandwidth: 1 << 30}, "softhca1:1": {Latency: 9000, Bandwidth: 16 << 30}, "softhca2:1": {Latency: 9000, Bandwidth: 8 << 30},
	}
	return func() []uct.Component {
		return layered(open(), wrap.Hooks{Iface: func(i *wrap.Iface) {
			x := &costed{i.Iface, *i.Attr()}
			for v := range x.attr.Costs {
				x.attr.Costs[v] = costs[x.attr.Resource.Device]
			}
			i.Iface = x
		}})
	}
}

// costed is an iface that reports other costs.
type costed struct {
	uct.Iface
	attr uct.IfaceAttr
}

func (i *costed) Attr() *uct.IfaceAttr { return &i.attr }
