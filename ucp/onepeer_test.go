package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
)

// granted returns the credit of a peer beyond firstWindow of each EP, in bytes.
func granted(w *ucp.Worker, uuid uint64) int64 {
	n, _ := w.Names().Granted(uuid)
	return n
}

// TestWindow_OnePeer: the windows of the EPs of one peer worker get at most half of EAGER_BUDGET. Another peer then
// gets the same window as without the first one, and closed EPs return their part.
func TestWindow_OnePeer(t *testing.T) {
	const extra = 48 << 10 // growth of a window
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{EagerWindow: ucp.FirstWindow + extra, EagerBudget: 4 * extra})
	w, uuid := p.B.W, p.A.W.AddressInfo().UUID()
	send := func(from *ucp.Worker) *ucp.EP {
		ep, err := from.NewEP(w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		in, err := w.TagRecv(nil, 1, exact, nil, nil)
		require.NoError(t, err)
		out, err := ep.TagSendSync(1, nil, nil)
		require.NoError(t, err)
		p.Until(func() bool { from.Progress(); return in.Done() && out.Done() })
		require.NoError(t, in.Take())
		require.NoError(t, out.Take())
		return ep
	}
	var eps []*ucp.EP
	for i := range 6 {
		eps = append(eps, send(p.A.W))
		require.EqualValues(t, min(i+1, 2)*extra, granted(w, uuid))
	}
	c := thirdWorker(p, p.A.Ctx)
	send(c)
	require.EqualValues(t, extra, granted(w, c.AddressInfo().UUID()))
	require.EqualValues(t, 3*extra, w.GrantedCredit())
	for _, ep := range eps {
		require.NoError(t, p.Finish(ep.Close(ucp.CloseFlush)))
	}
	p.Until(func() bool { return granted(w, uuid) == 0 })
	require.EqualValues(t, extra, w.GrantedCredit())
}

// windowFills are messages that use as much memory for each byte of a window as possible.
var windowFills = []struct {
	name string
	send func(w *ucp.Worker, e *ucp.EP, n int) bool // sends the nth message; false: it uses more than room
}{
	{"announcements with keys", func(w *ucp.Worker, e *ucp.EP, n int) bool {
		key := make([]byte, ucp.MaxStoredKey)
		if e.Messages().Size == window.Least {
			key = key[:ucp.MaxSmallKey]
		}
		return fits(e, 0, func(h []byte) {
			rts := wire.RTS{ID: uint64(n + 1), Length: 1 << 20, Key: key}
			w.Handler(wire.AMTagRTS)(rts.Append(h), nil)
		})
	}},
	{"messages slightly longer than a buffer", func(w *ucp.Worker, e *ucp.EP, _ int) bool {
		for _, size := range []int{8<<10 + 1, 2049, 1025, 513, 0} {
			if fits(e, size, func(h []byte) { w.Handler(wire.AMTag)(append(h, make([]byte, size)...), nil) }) {
				return true
			}
		}
		return false
	}},
	{"short messages", func(w *ucp.Worker, e *ucp.EP, _ int) bool {
		return fits(e, 65, func(h []byte) { w.Handler(wire.AMTag)(append(h, make([]byte, 65)...), nil) })
	}},
	{"first fragments", func(w *ucp.Worker, e *ucp.EP, n int) bool {
		return fits(e, 1025, func(h []byte) {
			p := wire.Part{Value: 1025, ID: uint64(n + 1)}
			w.Handler(wire.AMTagFirst)(p.Append(h), nil)
		})
	}},
	{"stream data", func(w *ucp.Worker, e *ucp.EP, n int) bool {
		return fits(e, 1025, func(h []byte) {
			b := append((&wire.Head{Word: e.Messages().Streaming().ReceiveOffset(), EP: e.ID()}).Append(nil), make([]byte, 1025)...)
			w.Handler(wire.AMStream)(b, nil)
		})
	}},
}

// fits handles a message of n bytes if the window and the reserve of the EP have room for it. It sets the head of the
// message.
func fits(e *ucp.EP, n int, handle func(head []byte)) bool {
	m := e.Messages()
	if m.Held+window.Charge(n) > m.Size+window.Reserve(m.Size) {
		return false
	}
	handle((&wire.Head{Word: 1, EP: e.ID()}).Append(nil))
	return true
}

// TestPeerBudget_Memory: one peer worker with the maximum number of EPs fills all windows. Then the worker uses at most
// 32 MiB more, for any messages.
func TestPeerBudget_Memory(t *testing.T) {
	testenv.SkipRace(t, "the detector uses memory")
	if invariants.Enabled {
		t.Skip("records say who made them")
	}
	eps := ucp.DefaultMaxEPsPerPeer
	if testing.Short() {
		eps = 512
	}
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{MaxEPsPerPeer: eps})
	w := p.B.W
	for range eps {
		ep, err := p.A.W.NewEP(w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(ep.TagSend(1, nil, nil)))
		require.NoError(t, p.Finish(w.TagRecv(nil, 1, exact, nil, nil)))
	}
	windows := map[int64]int{}
	for e := range w.EPs().All() {
		windows[e.Messages().Size]++
	}
	t.Logf("endpoints by window: %v", windows)
	require.Contains(t, windows, int64(window.Least))
	require.Contains(t, windows, int64(ucp.DefaultEagerWindow))
	for _, fill := range windowFills {
		before, sent := heapInUse(), 0
		for e := range w.EPs().All() {
			for fill.send(w, e, sent) {
				sent++
			}
			require.NoError(t, e.Err())
		}
		used := heapInUse() - before
		t.Logf("%s: %d, %.1f MiB", fill.name, sent, float64(used)/(1<<20))
		assert.LessOrEqual(t, used, int64(ucp.DefaultPeerBudget), fill.name)
		for e := range w.EPs().All() {
			e.DropIncoming()
		}
		for m, _, ok := w.TagProbe(0, 0, true); ok; m, _, ok = w.TagProbe(0, 0, true) {
			m.Release()
		}
	}
}

// TestPeerBudget_ManyHonest: peers with a hundred EPs each have firstWindow on each EP, and messages of all lengths
// arrive, also those that wait for credit.
func TestPeerBudget_ManyHonest(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	peers, each := 3, 100
	if testenv.Soak() {
		peers = 100
	}
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{})
	w := p.B.W
	short, long := testenv.Pattern(4000, 1), testenv.Pattern(200_000, 2)
	for range peers {
		from := thirdWorker(p, p.A.Ctx)
		until := func(ok func() bool) { p.Until(func() bool { from.Progress(); return ok() }) }
		var eps []*ucp.EP
		var waiting []*ucp.Request
		for range each {
			ep, err := from.NewEP(w.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			eps = append(eps, ep)
			for i, data := range [][]byte{short, short, short, short, short, long} { // more than firstWindow
				r, err := ep.TagSend(uint64(i), data, nil)
				require.NoError(t, err)
				if r != nil {
					waiting = append(waiting, r)
				}
			}
		}
		for _, i := range []int{5, 0, 3, 2, 1, 4} {
			for range each {
				buf := make([]byte, len(long))
				r, err := w.TagRecv(buf, uint64(i), exact, nil, nil)
				require.NoError(t, err)
				if r != nil {
					until(r.Done)
					require.NoError(t, r.Take())
				}
				if want := short; i < 5 {
					testenv.RequireBytes(t, want, buf[:len(want)])
				} else {
					testenv.RequireBytes(t, long, buf)
				}
			}
		}
		for _, r := range waiting {
			until(r.Done)
			require.NoError(t, r.Take())
		}
		for _, ep := range eps {
			require.NoError(t, ep.Err())
			require.GreaterOrEqual(t, ep.Messages().Most, int64(ucp.FirstWindow))
		}
	}
	require.Equal(t, peers*each, w.EPs().Len())
	require.Zero(t, counters(w)["worker.rejected_eps"])
}

// TestPeerBudget_Unexpected: the unexpected messages of a peer that connects and disconnects again and again use at
// most PEER_BUDGET, less the windows of its connections. Its oldest messages are dropped, and none of other peers.
func TestPeerBudget_Unexpected(t *testing.T) {
	const budget, eps = 256 << 10, 8
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{PeerBudget: budget, MaxEPsPerPeer: eps, EagerWindow: ucp.FirstWindow})
	w, uuid := p.B.W, p.A.W.AddressInfo().UUID()
	other := thirdWorker(p, p.A.Ctx)
	leave := func(from *ucp.Worker, tag uint64) {
		ep, err := from.NewEP(w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		r, err := ep.TagSend(tag, testenv.Pattern(4000, int(tag)), nil)
		require.NoError(t, err)
		until := func(ok func() bool) { p.Until(func() bool { other.Progress(); return ok() }) }
		kept := w.Tags().Unexpected()
		if r != nil {
			until(r.Done)
			require.NoError(t, r.Take())
		}
		until(func() bool { return w.Tags().Unexpected() > kept })
		r, err = ep.Close(ucp.CloseFlush)
		require.NoError(t, err)
		if r != nil {
			until(r.Done)
			require.NoError(t, r.Take())
		}
		until(func() bool { return w.EPs().Len() == 0 })
	}
	const others, first, last = 3, 1000, 1100
	for i := range others {
		leave(other, uint64(i+1))
	}
	for i := first; i < last; i++ {
		leave(p.A.W, uint64(i))
		require.LessOrEqual(t, w.LeftOf()[uuid], int64(budget))
	}
	left := w.Tags().Unexpected() - others
	require.Greater(t, left, 10)
	require.EqualValues(t, last-first-left, counters(w)["worker.dropped_messages"])
	for range eps { // their windows use the rest of the budget
		ep, err := p.A.W.NewEP(w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(ep.TagSend(last, nil, nil)))
		require.NoError(t, p.Finish(w.TagRecv(nil, last, exact, nil, nil)))
	}
	require.LessOrEqual(t, w.LeftOf()[uuid], w.LeftRoom(uuid))
	require.Less(t, w.LeftRoom(uuid), int64(budget-eps*ucp.LeastWindowMemory))
	require.Less(t, w.Tags().Unexpected()-others, left)
	buf := make([]byte, 4000)
	for i := range others {
		require.NoError(t, p.Finish(w.TagRecv(buf, uint64(i+1), exact, nil, nil)))
		testenv.RequireBytes(t, testenv.Pattern(4000, i+1), buf)
	}
	require.NoError(t, p.Finish(w.TagRecv(buf, last-1, exact, nil, nil)), "the latest was kept")
	for m, _, ok := w.TagProbe(0, 0, true); ok; m, _, ok = w.TagProbe(0, 0, true) {
		m.Release()
	}
	require.Empty(t, w.LeftOf())
	require.Zero(t, w.LeftBytes())
}

// TestPeerBudget_EachWorker: each worker of a context has its own limits: messages of a peer at one worker do not count
// at another one.
func TestPeerBudget_EachWorker(t *testing.T) {
	const extra = 48 << 10
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{EagerWindow: ucp.FirstWindow + extra, EagerBudget: extra})
	uuid := p.A.W.AddressInfo().UUID()
	for _, w := range []*ucp.Worker{p.B.W, thirdWorker(p, p.B.Ctx)} {
		ep, err := p.A.W.NewEP(w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		r, err := ep.TagSend(1, nil, nil)
		require.NoError(t, err)
		p.Until(func() bool { w.Progress(); return (r == nil || r.Done()) && w.Tags().Unexpected() == 1 })
		if r != nil {
			require.NoError(t, r.Take())
		}
		require.EqualValues(t, extra, granted(w, uuid))
		require.EqualValues(t, extra, w.GrantedCredit())
		require.NoError(t, p.Finish(w.TagRecv(nil, 1, exact, nil, nil)))
	}
}
