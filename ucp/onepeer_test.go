package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// granted returns the credit of a peer beyond firstWindow of each EP, in bytes.
func granted(w *Worker, uuid uint64) int64 {
	n, _ := w.names.Granted(uuid)
	return n
}

// TestWindow_OnePeer: the windows of the EPs of one peer worker get at most half of EAGER_BUDGET. Another peer then
// gets the same window as without the first one, and closed EPs return their part.
func TestWindow_OnePeer(t *testing.T) {
	const extra = 48 << 10 // growth of a window
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{EagerWindow: firstWindow + extra, EagerBudget: 4 * extra})
	w, uuid := p.b.w, p.a.w.net.addr.UUID()
	send := func(from *Worker) *EP {
		ep, err := from.NewEP(w.Address(), EPConfig{})
		require.NoError(t, err)
		in, err := w.TagRecv(nil, 1, exact, nil, nil)
		require.NoError(t, err)
		out, err := ep.TagSendSync(1, nil, nil)
		require.NoError(t, err)
		p.until(func() bool { from.Progress(); return in.Done() && out.Done() })
		require.NoError(t, in.take())
		require.NoError(t, out.take())
		return ep
	}
	var eps []*EP
	for i := range 6 {
		eps = append(eps, send(p.a.w))
		require.EqualValues(t, min(i+1, 2)*extra, granted(w, uuid))
	}
	c := p.third(p.a.ctx)
	send(c)
	require.EqualValues(t, extra, granted(w, c.net.addr.UUID()))
	require.EqualValues(t, 3*extra, w.messages.granted)
	for _, ep := range eps {
		require.NoError(t, p.finish(ep.Close(CloseFlush)))
	}
	p.until(func() bool { return granted(w, uuid) == 0 })
	require.EqualValues(t, extra, w.messages.granted)
}

// windowFills are messages that use as much memory for each byte of a window as possible.
var windowFills = []struct {
	name string
	send func(w *Worker, e *EP, n int) bool // sends the nth message; false: it uses more than room
}{
	{"announcements with keys", func(w *Worker, e *EP, n int) bool {
		key := make([]byte, maxKeptKey)
		if e.msgs.Size == leastWindow {
			key = key[:maxSmallKey]
		}
		return fits(e, 0, func(h []byte) {
			rts := wire.RTS{ID: uint64(n + 1), Length: 1 << 20, Key: key}
			w.handleTagRTS(rts.Append(h), nil)
		})
	}},
	{"messages slightly longer than a buffer", func(w *Worker, e *EP, _ int) bool {
		for _, size := range []int{8<<10 + 1, 2049, 1025, 513, 0} {
			if fits(e, size, func(h []byte) { w.handleTag(append(h, make([]byte, size)...)) }) {
				return true
			}
		}
		return false
	}},
	{"short messages", func(w *Worker, e *EP, _ int) bool {
		return fits(e, 65, func(h []byte) { w.handleTag(append(h, make([]byte, 65)...)) })
	}},
	{"first fragments", func(w *Worker, e *EP, n int) bool {
		return fits(e, 1025, func(h []byte) {
			p := wire.Part{Value: 1025, ID: uint64(n + 1)}
			w.handleTagFirst(p.Append(h), nil)
		})
	}},
	{"stream data", func(w *Worker, e *EP, n int) bool {
		return fits(e, 1025, func(h []byte) {
			b := append((&wire.Head{Word: e.msgs.streaming().came, EP: e.id}).Append(nil), make([]byte, 1025)...)
			w.handleStream(b, nil)
		})
	}},
}

// fits handles a message of n bytes if the window and the reserve of the EP have room for it. It sets the head of the
// message.
func fits(e *EP, n int, handle func(head []byte)) bool {
	m := e.msgs
	if m.Held+charge(n) > m.Size+window.Reserve(m.Size) {
		return false
	}
	handle((&wire.Head{Word: 1, EP: e.id}).Append(nil))
	return true
}

// TestPeerBudget_Memory: one peer worker with the maximum number of EPs fills all windows. Then the worker uses at most
// 32 MiB more, for any messages.
func TestPeerBudget_Memory(t *testing.T) {
	testenv.SkipRace(t, "the detector uses memory")
	if invariants.Enabled {
		t.Skip("records say who made them")
	}
	eps := defaultMaxEPsPerPeer
	if testing.Short() {
		eps = 512
	}
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{MaxEPsPerPeer: eps})
	w := p.b.w
	for range eps {
		ep, err := p.a.w.NewEP(w.Address(), EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.finish(ep.TagSend(1, nil, nil)))
		require.NoError(t, p.finish(w.TagRecv(nil, 1, exact, nil, nil)))
	}
	windows := map[int64]int{}
	for e := range w.eps.All() {
		windows[e.msgs.Size]++
	}
	t.Logf("endpoints by window: %v", windows)
	require.Contains(t, windows, int64(leastWindow))
	require.Contains(t, windows, int64(defaultEagerWindow))
	for _, fill := range windowFills {
		before, sent := heapInUse(), 0
		for e := range w.eps.All() {
			for fill.send(w, e, sent) {
				sent++
			}
			require.NoError(t, e.Err())
		}
		used := heapInUse() - before
		t.Logf("%s: %d, %.1f MiB", fill.name, sent, float64(used)/(1<<20))
		assert.LessOrEqual(t, used, int64(defaultPeerBudget), fill.name)
		for e := range w.eps.All() {
			e.endEach(0, func(p *protocol) func(*EP, ucs.Status) { return p.incomingLost })
			e.msgs.dropStream()
		}
		for m, _, ok := w.TagProbe(0, 0, true); ok; m, _, ok = w.TagProbe(0, 0, true) {
			m.Release()
		}
	}
}

// TestPeerBudget_ManyHonest: peers with a hundred EPs each have firstWindow on each EP, and messages of all lengths
// arrive, also those that wait for credit.
func TestPeerBudget_ManyHonest(t *testing.T) {
	peers, each := 3, 100
	if testenv.Soak() {
		peers = 100
	}
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{})
	w := p.b.w
	short, long := pattern(4000, 1), pattern(200_000, 2)
	for range peers {
		from := p.third(p.a.ctx)
		until := func(ok func() bool) { p.until(func() bool { from.Progress(); return ok() }) }
		var eps []*EP
		var waiting []*Request
		for range each {
			ep, err := from.NewEP(w.Address(), EPConfig{})
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
					require.NoError(t, r.take())
				}
				if want := short; i < 5 {
					requireBytes(t, want, buf[:len(want)])
				} else {
					requireBytes(t, long, buf)
				}
			}
		}
		for _, r := range waiting {
			until(r.Done)
			require.NoError(t, r.take())
		}
		for _, ep := range eps {
			require.NoError(t, ep.Err())
			require.GreaterOrEqual(t, ep.msgs.Most, int64(firstWindow))
		}
	}
	require.Equal(t, peers*each, w.eps.Len())
	require.Zero(t, counters(w)["worker.rejected_eps"])
}

// TestPeerBudget_Unexpected: the unexpected messages of a peer that connects and disconnects again and again use at
// most PEER_BUDGET, less the windows of its connections. Its oldest messages are dropped, and none of other peers.
func TestPeerBudget_Unexpected(t *testing.T) {
	const budget, eps = 256 << 10, 8
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{PeerBudget: budget, MaxEPsPerPeer: eps, EagerWindow: firstWindow})
	w, uuid := p.b.w, p.a.w.net.addr.UUID()
	other := p.third(p.a.ctx)
	leave := func(from *Worker, tag uint64) {
		ep, err := from.NewEP(w.Address(), EPConfig{})
		require.NoError(t, err)
		r, err := ep.TagSend(tag, pattern(4000, int(tag)), nil)
		require.NoError(t, err)
		until := func(ok func() bool) { p.until(func() bool { other.Progress(); return ok() }) }
		kept := w.tag.table.Unexpected()
		if r != nil {
			until(r.Done)
			require.NoError(t, r.take())
		}
		until(func() bool { return w.tag.table.Unexpected() > kept })
		r, err = ep.Close(CloseFlush)
		require.NoError(t, err)
		if r != nil {
			until(r.Done)
			require.NoError(t, r.take())
		}
		until(func() bool { return w.eps.Len() == 0 })
	}
	const others, first, last = 3, 1000, 1100
	for i := range others {
		leave(other, uint64(i+1))
	}
	for i := first; i < last; i++ {
		leave(p.a.w, uint64(i))
		require.LessOrEqual(t, w.messages.leftOf[uuid], int64(budget))
	}
	left := w.tag.table.Unexpected() - others
	require.Greater(t, left, 10)
	require.EqualValues(t, last-first-left, counters(w)["worker.dropped_messages"])
	for range eps { // their windows use the rest of the budget
		ep, err := p.a.w.NewEP(w.Address(), EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.finish(ep.TagSend(last, nil, nil)))
		require.NoError(t, p.finish(w.TagRecv(nil, last, exact, nil, nil)))
	}
	require.LessOrEqual(t, w.messages.leftOf[uuid], w.leftRoom(uuid))
	require.Less(t, w.leftRoom(uuid), int64(budget-eps*leastWindowMemory))
	require.Less(t, w.tag.table.Unexpected()-others, left)
	buf := make([]byte, 4000)
	for i := range others {
		require.NoError(t, p.finish(w.TagRecv(buf, uint64(i+1), exact, nil, nil)))
		requireBytes(t, pattern(4000, i+1), buf)
	}
	require.NoError(t, p.finish(w.TagRecv(buf, last-1, exact, nil, nil)), "the latest was kept")
	for m, _, ok := w.TagProbe(0, 0, true); ok; m, _, ok = w.TagProbe(0, 0, true) {
		m.Release()
	}
	require.Empty(t, w.messages.leftOf)
	require.Zero(t, w.messages.leftBytes)
}

// TestPeerBudget_EachWorker: each worker of a context has its own limits: messages of a peer at one worker do not count
// at another one.
func TestPeerBudget_EachWorker(t *testing.T) {
	const extra = 48 << 10
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{EagerWindow: firstWindow + extra, EagerBudget: extra})
	uuid := p.a.w.net.addr.UUID()
	for _, w := range []*Worker{p.b.w, p.third(p.b.ctx)} {
		ep, err := p.a.w.NewEP(w.Address(), EPConfig{})
		require.NoError(t, err)
		r, err := ep.TagSend(1, nil, nil)
		require.NoError(t, err)
		p.until(func() bool { w.Progress(); return (r == nil || r.Done()) && w.tag.table.Unexpected() == 1 })
		if r != nil {
			require.NoError(t, r.take())
		}
		require.EqualValues(t, extra, granted(w, uuid))
		require.EqualValues(t, extra, w.messages.granted)
		require.NoError(t, p.finish(w.TagRecv(nil, 1, exact, nil, nil)))
	}
}
