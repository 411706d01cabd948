package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

// twoFast are two devices, one three times as fast as the other.
func twoFast() []faketp.Kind {
	fast, slow := faketp.LikeRC(), faketp.LikeRC()
	fast.Bandwidth, slow.Bandwidth, slow.Device = 3<<30, 1<<30, "b"
	return []faketp.Kind{fast, slow, faketp.LikeUD()}
}

// twoHCAs is a transport over two software HCAs, whose memory domains have separate keys.
func twoHCAs(testing.TB) func() []uct.Component { return hcas(2) }

// hcas returns a transport over n software HCAs.
func hcas(n int) func() []uct.Component {
	return func() []uct.Component { return tlsets.Components(all.Config{Devices: softHCAs(n)}) }
}

// softHCAs returns n software HCAs.
func softHCAs(n int) func() ([]*verbs.Device, error) {
	return func() (list []*verbs.Device, err error) {
		for i := range n {
			d, err := softhca.NewDevice(softhca.Config{Name: fmt.Sprint("softhca", i)})
			if err != nil {
				return nil, err
			}
			list = append(list, d)
		}
		return list, nil
	}
}

// railSets are transports of which two lanes share large transfers.
func railSets() []tlsets.Set {
	return []tlsets.Set{
		faketp.Set("fakes", twoFast()...),
		configured("tcp, two devices", twoDevices, "tcp"),
		configured("rc, two devices", twoHCAs, `\rc`),
		configured("rc_mlx5, two devices", twoHCAs, "rc_mlx5"),
	}
}

// railConfig makes lanes share large puts, gets and announced messages.
func railConfig() Config {
	return Config{MaxRMARails: 2, RndvThresh: 1}
}

// overRails runs a test over each set; each side has two lanes.
func overRails(t *testing.T, cfg Config, f func(t *testing.T, p *pair)) {
	for _, set := range railSets() {
		t.Run(set.Name, func(t *testing.T) { f(t, newPair(t, set, cfg).onRails()) })
	}
}

// onRails connects both sides and waits until each has two lanes that share transfers.
func (p *pair) onRails() *pair {
	p.t.Helper()
	p.both()
	for _, x := range []*end{&p.a, &p.b} {
		require.NoError(p.t, p.finish(x.ep.Put([]byte{1}, x.key.Addr(), x.key, nil)))
		require.NoError(p.t, p.finish(x.ep.Flush()))
		p.until(func() bool { return x.ep.link.rails.Len() == 2 })
	}
	return p
}

// railLanes returns the lanes of a's EP that share transfers.
func (x *end) railLanes() (list []*lane) {
	l := x.ep.link
	for i := range l.rails.Len() {
		list = append(list, &l.lanes.All[l.rails.lanes[i]])
	}
	return list
}

// carried returns the number of bytes that each lane of fakes has put and got since the last call.
func (x *end) carried() (bytes []int) {
	for _, l := range x.railLanes() {
		i := l.EP.(*faketp.EP).Iface
		bytes, i.Moved = append(bytes, i.Moved), 0
	}
	return bytes
}

// TestRails_PutGet: puts and gets transfer the right data, in lengths around the threshold, from memory that is
// registered and not.
func TestRails_PutGet(t *testing.T) {
	overRails(t, railConfig(), func(t *testing.T, p *pair) {
		from := p.a.ep.link.rails.From(minRMAChunk)
		require.Greater(t, from, 1)
		for i, n := range []int{1, from - 1, from, from + 1, 40_001, memLen} {
			for _, zcopy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/zcopy=%v", n, zcopy), func(t *testing.T) {
					share := func(r *Request) { // not of operations that have completed at once
						assert.True(t, r == nil || (n >= from) == (r.stage.part != nil), "shared")
					}
					local, params := make([]byte, n), (*OpParams)(nil)
					if zcopy {
						local, params = p.a.mem.Bytes()[:n], &OpParams{Mem: p.a.mem}
					}
					clear(p.b.mem.Bytes())
					copy(local, pattern(n, i))
					r, err := p.a.ep.Put(local, p.a.key.Addr(), p.a.key, params)
					require.NoError(t, err)
					share(r)
					require.NoError(t, p.finish(r, nil))
					require.NoError(t, p.flush())
					requireBytes(t, pattern(n, i), p.b.mem.Bytes()[:n])
					requireZero(t, p.b.mem.Bytes()[n:], "written past the end")
					clear(local)
					r, err = p.a.ep.Get(local, p.a.key.Addr(), p.a.key, params)
					require.NoError(t, err)
					share(r)
					require.NoError(t, p.finish(r, nil))
					requireBytes(t, pattern(n, i), local)
				})
			}
		}
	})
}

// TestRails_Shares: the lanes share transfers in proportion to their bandwidth.
func TestRails_Shares(t *testing.T) {
	p := newPair(t, faketp.Set("fakes", twoFast()...), railConfig()).onRails()
	p.a.carried()
	require.NoError(t, p.finish(p.a.ep.Put(p.a.mem.Bytes(), p.a.key.Addr(), p.a.key, &OpParams{Mem: p.a.mem})))
	require.NoError(t, p.flush())
	assert.Equal(t, []int{memLen * 3 / 4, memLen / 4}, p.a.carried())
	text := p.a.ep.Explain()
	assert.Contains(t, text, "put, get of 32768 bytes or more: frc fake0:1 75% frc fake0:1b 25%\n")
	assert.Contains(t, text, "data of rendezvous messages of 65536 bytes or more: frc fake0:1 75% frc fake0:1b 25%\n")
}

// TestRails_ByDefault: only announced messages are shared. The first large one opens the second lane.
func TestRails_ByDefault(t *testing.T) {
	p := newPair(t, faketp.Set("fakes", twoFast()...), Config{})
	p.both()
	require.NoError(t, p.finish(p.a.ep.Put(p.a.mem.Bytes(), p.a.key.Addr(), p.a.key, &OpParams{Mem: p.a.mem})))
	require.NoError(t, p.flush())
	assert.Zero(t, p.a.ep.link.rails.Len())
	text := p.a.ep.Explain()
	assert.Contains(t, text, "put, get: never, MAX_RMA_RAILS=1\n")
	assert.Contains(t, text, "data of rendezvous messages of 65536 bytes or more: frc fake0:1 75% frc fake0:1b 25%\n")
	p.sendTagged(t, memLen, 1)
	p.until(func() bool { return p.b.ep.link != nil && p.b.ep.link.rails.Len() == 2 })
	p.b.carried()
	p.sendTagged(t, memLen, 2)
	assert.Equal(t, []int{memLen * 3 / 4, memLen / 4}, p.b.carried())
}

// sendTagged sends n bytes from a's memory to b's.
func (p *pair) sendTagged(t *testing.T, n, seed int) {
	t.Helper()
	send, recv := p.startTagged(t, n, seed)
	require.NoError(t, p.finish(send, nil))
	require.NoError(t, p.finish(recv, nil))
	requireBytes(t, pattern(n, seed), p.b.mem.Bytes()[:n])
}

func (p *pair) startTagged(t *testing.T, n, seed int) (send, recv *Request) {
	t.Helper()
	clear(p.b.mem.Bytes())
	copy(p.a.mem.Bytes(), pattern(n, seed))
	recv, err := p.b.w.TagRecv(p.b.mem.Bytes()[:n], 1, exact, nil, &OpParams{Mem: p.b.mem})
	require.NoError(t, err)
	send, err = p.a.ep.TagSend(1, p.a.mem.Bytes()[:n], &OpParams{Mem: p.a.mem})
	require.NoError(t, err)
	return send, recv
}

// TestRails_Messages: announced messages arrive completely, with each scheme.
func TestRails_Messages(t *testing.T) {
	for _, scheme := range tlsets.RndvSchemes {
		t.Run(scheme, func(t *testing.T) {
			cfg := railConfig()
			cfg.RndvScheme = scheme
			overRails(t, cfg, func(t *testing.T, p *pair) {
				for i, n := range []int{1, 8 << 10, 32 << 10, 50_001, memLen} {
					p.sendTagged(t, n, i)
				}
				require.NoError(t, p.flush())
			})
		})
	}
}

// TestRails_WithinAHost: peers of a host do not share transfers between sm and tcp.
func TestRails_WithinAHost(t *testing.T) {
	set := configured("sm and tcp", func(testing.TB) func() []uct.Component { return all.Components }, "sm", "tcp")
	p := newPair(t, set, railConfig())
	p.both()
	for i := range 3 {
		p.sendTagged(t, memLen, i)
	}
	require.NoError(t, p.flush())
	for _, x := range []*end{&p.a, &p.b} {
		assert.LessOrEqual(t, x.ep.link.rails.Len(), 1)
		plan := x.ep.link.conn.Plan(wireup.RMABW)
		require.Len(t, plan, 1)
		assert.Equal(t, "sm", x.w.ifaces[plan[0].Local].kind())
	}
}

// TestRails_Fence: operations after a fence take effect after shared transfers before it, and the other way round.
func TestRails_Fence(t *testing.T) {
	ways := []fenced{
		put("short", 8, false), put("shared", blockLen, true), put("shared copies", blockLen, false), add("post", uct.AtomicAdd, 8, false),
	}
	overRails(t, railConfig(), func(t *testing.T, p *pair) {
		for _, f := range []*fenceCase{{&p.a, &p.b}, {&p.b, &p.a}} {
			for _, first := range ways {
				for _, second := range ways {
					clear(f.to.mem.Bytes()[:2*blockLen])
					for i := 1; i <= 3; i++ {
						p.fence(f, first, second, i)
					}
				}
			}
		}
	})
}

// freeze makes a lane of fakes stop to execute operations.
func (x *end) freeze(rail int) *faketp.EP {
	e := x.railLanes()[rail].EP.(*faketp.EP)
	e.Iface.Frozen = true
	return e
}

// TestRails_LaneBreaks: if a lane breaks while a part of a get is in flight over it, the part is repeated over the
// other lane. A put fails once with the reason, and so does one flush.
func TestRails_LaneBreaks(t *testing.T) {
	for rail := range 2 {
		for _, at := range []string{"here", "at the peer"} {
			t.Run(fmt.Sprintf("lane %d %s", rail, at), func(t *testing.T) {
				p := newPair(t, faketp.Set("fakes", twoFast()...), railConfig()).onRails()
				copy(p.b.mem.Bytes(), pattern(memLen, 7))
				e := p.a.freeze(rail)
				got := make([]byte, memLen/2)
				get, err := p.a.ep.Get(got, p.a.key.Addr(), p.a.key, nil)
				require.NoError(t, err)
				put, err := p.a.ep.Put(p.a.mem.Bytes()[:memLen/2], p.a.key.Addr()+memLen/2, p.a.key, &OpParams{Mem: p.a.mem})
				require.NoError(t, err)
				p.breakAt(at, e)
				for range 100 { // the handshake uses both
					p.a.w.Progress()
				}
				assert.Zero(t, counters(p.a.w)["worker.repeated_transfers"], "the peer has not closed the lane")
				require.NoError(t, p.finish(get, nil))
				requireBytes(t, pattern(memLen, 7)[:len(got)], got)
				assert.ErrorIs(t, p.finish(put, nil), ucs.ErrTimedOut)
				assert.Positive(t, counters(p.a.w)["worker.repeated_transfers"])
				assert.ErrorIs(t, p.flush(), ucs.ErrTimedOut, "the flush reports it")
				require.NoError(t, p.flush(), "once")
				require.NoError(t, p.a.ep.Err())
				assert.LessOrEqual(t, p.a.ep.link.rails.Len(), 1)
				require.NoError(t, p.finish(p.a.ep.Get(got, p.a.key.Addr(), p.a.key, nil)))
			})
		}
	}
}

// breakAt breaks a lane of a at one of its ends.
func (p *pair) breakAt(at string, e *faketp.EP) {
	if at == "here" {
		e.Fail(ucs.StatusTimedOut)
		e.Iface.Frozen = false
		return
	}
	for _, x := range p.b.railLanes() {
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
			p := newPair(t, faketp.Set("fakes", twoFast()...), cfg).onRails()
			mover := &p.b
			if scheme == "put_zcopy" {
				mover = &p.a
			}
			e := mover.freeze(1)
			send, recv := p.startTagged(t, memLen, 5)
			p.until(func() bool { return e.InFlight > 0 })
			e.Fail(ucs.StatusTimedOut)
			e.Iface.Frozen = false
			p.checkRepeated(t, mover, send, recv)
		})
	}
}

// checkRepeated checks that a message of memLen bytes arrives completely, after a part of it was repeated.
func (p *pair) checkRepeated(t *testing.T, mover *end, send, recv *Request) {
	t.Helper()
	require.NoError(t, p.finish(send, nil))
	require.NoError(t, p.finish(recv, nil))
	requireBytes(t, pattern(memLen, 5), p.b.mem.Bytes())
	assert.Positive(t, counters(mover.w)["worker.repeated_transfers"])
	require.NoError(t, p.a.ep.Err())
	require.NoError(t, p.b.ep.Err())
}

// TestRails_LaneBreaksBeforeTheFlush: a lane has accepted its part of the data of a message, and breaks and loses it
// before the flush. The receive does not complete without the data.
func TestRails_LaneBreaksBeforeTheFlush(t *testing.T) {
	cfg := railConfig()
	cfg.RndvScheme = "put_zcopy"
	p := newPair(t, faketp.Set("fakes", twoFast()...), cfg).onRails()
	send, recv := p.startTagged(t, memLen, 5)
	p.until(func() bool { return recv.stage.fetches })
	first, second := p.a.freeze(0), p.a.railLanes()[1].EP.(*faketp.EP)
	second.Iface.Loses = true
	p.until(func() bool { return second.Iface.Lost > 0 })
	second.Fail(ucs.StatusTimedOut)
	first.Iface.Frozen = false
	p.checkRepeated(t, &p.a, send, recv)
}

// TestRails_OneDomain: memory that is registered with one of two domains only uses the lane of that domain.
func TestRails_OneDomain(t *testing.T) {
	p := newPair(t, configured("rc, two devices", twoHCAs, `\rc`), railConfig()).onRails()
	buf := pattern(memLen, 3)
	at := p.a.ep.peer.Addr.Resources[p.a.ep.lane(wireup.RMA).Remote].MD
	mem, err := p.b.ctx.memory.Domains[at].Register(buf, uct.AccessAll)
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	key, err := p.a.ep.Unpack(mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	r, err := p.a.ep.Get(p.a.mem.Bytes(), key.Addr(), key, &OpParams{Mem: p.a.mem})
	require.NoError(t, err)
	assert.True(t, r == nil || r.stage.part == nil, "shared")
	require.NoError(t, p.finish(r, nil))
	requireBytes(t, buf, p.a.mem.Bytes())
}

// TestRails_LateError: a lane rejects its part of a get before its transport has reported that it broke.
func TestRails_LateError(t *testing.T) {
	p := newPair(t, faketp.Set("fakes", twoFast()...), railConfig()).onRails()
	copy(p.b.mem.Bytes(), pattern(memLen, 4))
	e := p.a.railLanes()[1].EP.(*faketp.EP)
	e.Status = ucs.StatusTimedOut
	e.Iface.Hook = func() {
		e.Iface.Hook = nil
		e.Iface.OnError(e, ucs.ErrTimedOut)
	}
	require.NoError(t, p.finish(p.a.ep.Get(p.a.mem.Bytes(), p.a.key.Addr(), p.a.key, &OpParams{Mem: p.a.mem})))
	requireBytes(t, pattern(memLen, 4), p.a.mem.Bytes())
	assert.Positive(t, counters(p.a.w)["worker.repeated_transfers"])
	require.ErrorIs(t, p.flush(), ucs.ErrTimedOut, "the flush reports the lane")
	require.NoError(t, p.a.ep.Err())
}

// TestRails_Config: invalid settings are rejected.
func TestRails_Config(t *testing.T) {
	for _, cfg := range []Config{{MaxRndvRails: selection.MaxRails + 1}, {MaxRMARails: -1}} {
		assert.ErrorIs(t, cfg.Validate(), ucs.ErrInvalidParam)
	}
	cfg := fromEnv(t, "MAX_RMA_RAILS=3")
	assert.Equal(t, selection.Rails{RMA: 3}, (&Config{MaxRMARails: cfg.MaxRMARails}).rails())
	assert.Equal(t, sharing{2, 16 << 10}, cfg.rndvSharing())
	assert.Equal(t, sharing{3, 8 << 10}, cfg.rmaSharing())
	assert.Equal(t, 16<<10, cfg.sharedFrom())
}

// TestRails_SeparateLane: memory that is registered for several lanes is also accessible over the lane of single puts
// and gets, which is another one.
func TestRails_SeparateLane(t *testing.T) {
	cfg := railConfig()
	for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
		t.Run(scheme, func(t *testing.T) {
			cfg.RndvScheme = scheme
			set := configured("rc, three devices", nearAndFast, `\rc`)
			p := newPair(t, set, cfg).onRails()
			alone := p.a.ep.lane(wireup.RMA)
			require.NotContains(t, p.a.railLanes(), alone)
			require.Contains(t, p.a.w.lanes.groups[p.a.ep.link.group], alone.Iface.domain)
			from := p.a.ep.link.rails.From(minRMAChunk)
			require.Greater(t, from, 10<<10)
			for i, n := range []int{10 << 10, memLen} {
				data, buf := pattern(n, i), make([]byte, n)
				recv, err := p.b.w.TagRecv(buf, 1, exact, nil, nil)
				require.NoError(t, err)
				sent, err := p.a.ep.TagSend(1, data, nil)
				require.NoError(t, p.finish(sent, err))
				require.NoError(t, p.finish(recv, nil))
				requireBytes(t, data, buf)
			}
		})
	}
}

// nearAndFast is a transport over a device of low latency and two of higher bandwidth.
func nearAndFast(t testing.TB) func() []uct.Component {
	open := hcas(3)
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
