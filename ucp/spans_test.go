package ucp

import (
	"bytes"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// measured returns the number of spans of each class that a worker has counted.
func measured(w *Worker) map[string]int {
	n := map[string]int{}
	for path, h := range w.Stats().Snapshot().AllHistograms() {
		n[strings.TrimPrefix(path, "worker/latency.")] = int(h.Count())
	}
	return n
}

// TestSpans_Latency: each operation of the caller is counted once, with each protocol.
func TestSpans_Latency(t *testing.T) {
	for _, set := range faketp.AllSets() {
		set.Run(t, func(t *testing.T) {
			p := newPair(t, set, Config{LatencyStats: true})
			if p.oneself() {
				t.Skip("one EP has both sides")
			}
			p.both().connect()
			before := measured(p.a.w)
			const n = 3
			mem := p.a.mem
			var old uint64
			for range n {
				require.NoError(t, p.finish(p.a.ep.Put(pattern(8, 1), p.b.mem.Addr(), p.a.key, nil)))
				require.NoError(t, p.finish(p.a.ep.Get(make([]byte, 3000), p.b.mem.Addr(), p.a.key, nil)))
				require.NoError(t, p.finish(p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.b.mem.Addr()+128, p.a.key)))
				require.NoError(t, p.flush())
				send, err := p.a.ep.TagSend(7, mem.Bytes()[:4096], &OpParams{Mem: mem})
				require.NoError(t, err)
				require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 4096), 7, 0, nil, nil)))
				require.NoError(t, p.finish(send, nil))
			}
			after := measured(p.a.w)
			for _, name := range []string{"put", "get", "atomic", "flush", "tag_send"} {
				assert.Equal(t, n, after[name]-before[name], name)
			}
			assert.Equal(t, 1, after["connect"])
			assert.Zero(t, after["failover"])
			assert.Empty(t, p.a.w.stats.spans.open)
		})
	}
}

// TestSpans_Rendezvous: a message with rendezvous is counted once, from the RTS to its completion.
func TestSpans_Rendezvous(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{LatencyStats: true, RndvThresh: 1000}).connect()
	send, err := p.a.ep.TagSend(7, pattern(100<<10, 1), nil)
	require.NoError(t, err)
	require.NotNil(t, send)
	require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 100<<10), 7, 0, nil, nil)))
	require.NoError(t, p.finish(send, nil))
	assert.Equal(t, 1, measured(p.a.w)["rendezvous"])

	send, err = p.a.ep.TagSend(7, pattern(100<<10, 1), nil)
	require.NoError(t, err)
	p.until(func() bool { return p.b.w.Info().Unexpected == 1 })
	require.NoError(t, p.a.ep.CloseWait(t.Context(), CloseForce))
	require.Error(t, p.finish(send, nil))
	assert.Equal(t, 1, measured(p.a.w)["rendezvous"], "a failed one is not counted")
	assert.Empty(t, p.a.w.stats.spans.open)
}

// TestSpans_Failover: the time from the loss of a lane to its replacement is counted.
func TestSpans_Failover(t *testing.T) {
	p, _ := fakePair(t, Config{LatencyStats: true}, faketp.LikeRC(), likeRC2(), faketp.LikeUD())
	p.connect().warm()
	breakLane(p.a.ep, wireup.RMA, ucs.StatusTimedOut)
	p.until(func() bool { return measured(p.a.w)["failover"] > 0 })
	require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
	p.checkMoved(t)
	assert.Equal(t, 1, measured(p.a.w)["failover"])
}

// TestSpans_Trace: a trace has connecting, a rendezvous and a failover as tasks; none of them is measured.
func TestSpans_Trace(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("the tests are being traced")
	}
	var out bytes.Buffer
	require.NoError(t, trace.Start(&out))
	defer trace.Stop()
	p, _ := fakePair(t, Config{RndvThresh: 1000}, faketp.LikeRC(), likeRC2(), faketp.LikeUD())
	p.connect().warm()
	breakLane(p.a.ep, wireup.RMA, ucs.StatusTimedOut)
	p.until(func() bool {
		x := p.a.ep.lane(wireup.RMA)
		return x != nil && x.Iface.kind() == "frc2"
	})
	require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
	p.checkMoved(t)
	send, err := p.a.ep.TagSend(7, pattern(100<<10, 1), nil) // the failover is before, because an EP fails with its lane of messages
	require.NoError(t, err)
	require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 100<<10), 7, 0, nil, nil)))
	require.NoError(t, p.finish(send, nil))
	trace.Stop()
	for _, task := range []string{"gucx.connect", "gucx.rendezvous", "gucx.failover"} {
		assert.Contains(t, out.String(), task)
	}
	assert.Empty(t, measured(p.a.w))
	assert.Empty(t, p.a.w.stats.spans.open)
}
