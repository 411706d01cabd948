package ucp_test

import (
	"bytes"
	"runtime/trace"
	"strings"
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
	"github.com/gucx/gucx/wireup"
)

// measured returns the number of spans of each class that a worker has counted.
func measured(w *ucp.Worker) map[string]int {
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
			p := ucppair.New(t, set, ucp.Config{LatencyStats: true})
			if p.Oneself() {
				t.Skip("one EP has both sides")
			}
			p.Both().Connect()
			before := measured(p.A.W)
			const n = 3
			mem := p.A.Mem
			var old uint64
			for range n {
				require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(8, 1), p.B.Mem.Addr(), p.A.Key, nil)))
				require.NoError(t, p.Finish(p.A.EP.Get(make([]byte, 3000), p.B.Mem.Addr(), p.A.Key, nil)))
				require.NoError(t, p.Finish(p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.B.Mem.Addr()+128, p.A.Key)))
				require.NoError(t, p.Flush())
				send, err := p.A.EP.TagSend(7, mem.Bytes()[:4096], &ucp.OpParams{Mem: mem})
				require.NoError(t, err)
				require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 4096), 7, 0, nil, nil)))
				require.NoError(t, p.Finish(send, nil))
			}
			after := measured(p.A.W)
			for _, name := range []string{"put", "get", "atomic", "flush", "tag_send"} {
				assert.Equal(t, n, after[name]-before[name], name)
			}
			assert.Equal(t, 1, after["connect"])
			assert.Zero(t, after["failover"])
			assert.Zero(t, p.A.W.OpenSpans())
		})
	}
}

// TestSpans_Rendezvous: a message with rendezvous is counted once, from the RTS to its completion.
func TestSpans_Rendezvous(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{LatencyStats: true, RndvThresh: 1000}).Connect()
	send, err := p.A.EP.TagSend(7, testenv.Pattern(100<<10, 1), nil)
	require.NoError(t, err)
	require.NotNil(t, send)
	require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 100<<10), 7, 0, nil, nil)))
	require.NoError(t, p.Finish(send, nil))
	assert.Equal(t, 1, measured(p.A.W)["rendezvous"])

	send, err = p.A.EP.TagSend(7, testenv.Pattern(100<<10, 1), nil)
	require.NoError(t, err)
	p.Until(func() bool { return p.B.W.Info().Unexpected == 1 })
	require.NoError(t, p.A.EP.CloseWait(t.Context(), ucp.CloseForce))
	require.Error(t, p.Finish(send, nil))
	assert.Equal(t, 1, measured(p.A.W)["rendezvous"], "a failed one is not counted")
	assert.Zero(t, p.A.W.OpenSpans())
}

// TestSpans_Failover: the time from the loss of a lane to its replacement is counted.
func TestSpans_Failover(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{LatencyStats: true}, faketp.LikeRC(), likeRC2(), faketp.LikeUD())
	p.Connect().Warm()
	breakLane(p.A.EP, wireup.RMA, ucs.StatusTimedOut)
	p.Until(func() bool { return measured(p.A.W)["failover"] > 0 })
	require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
	checkMoved(t, p)
	assert.Equal(t, 1, measured(p.A.W)["failover"])
}

// TestSpans_Trace: a trace has connecting, a rendezvous and a failover as tasks; none of them is measured.
func TestSpans_Trace(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("the tests are being traced")
	}
	var out bytes.Buffer
	require.NoError(t, trace.Start(&out))
	defer trace.Stop()
	p, _ := ucppair.Fake(t, ucp.Config{RndvThresh: 1000}, faketp.LikeRC(), likeRC2(), faketp.LikeUD())
	p.Connect().Warm()
	breakLane(p.A.EP, wireup.RMA, ucs.StatusTimedOut)
	p.Until(func() bool {
		x := p.A.EP.Lane(wireup.RMA)
		return x != nil && kindOf(x.Iface) == "frc2"
	})
	require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
	checkMoved(t, p)
	send, err := p.A.EP.TagSend(7, testenv.Pattern(100<<10, 1), nil) // the failover is before, because an EP fails with its lane of messages
	require.NoError(t, err)
	require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 100<<10), 7, 0, nil, nil)))
	require.NoError(t, p.Finish(send, nil))
	trace.Stop()
	for _, task := range []string{"gucx.connect", "gucx.rendezvous", "gucx.failover"} {
		assert.Contains(t, out.String(), task)
	}
	assert.Empty(t, measured(p.A.W))
	assert.Zero(t, p.A.W.OpenSpans())
}
