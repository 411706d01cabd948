package ucp_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
)

// TestTag_UnexpectedAreLimited: the unexpected messages of peers that have disconnected are limited, and receives match the
// latest ones.
func TestTag_UnexpectedAreLimited(t *testing.T) {
	const budget, size = 64 << 10, 4000
	for _, set := range []tlsets.Set{faketp.Set("like sm", faketp.LikeSM()), tlsets.Real("tcp", "tcp")} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{EagerBudget: budget})
			w := p.B.W
			const peers = 50
			for i := range peers {
				p.Connect()
				kept := w.Tags().Unexpected()
				require.NoError(t, p.Finish(p.A.EP.TagSend(uint64(i), testenv.Pattern(size, i), nil)))
				require.NoError(t, p.Finish(p.A.EP.TagSend(exact, nil, nil)))
				require.NoError(t, p.Finish(w.TagRecv(nil, exact, exact, nil, nil)))
				require.Equal(t, kept+1, w.Tags().Unexpected())
				require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
				p.Until(func() bool { return w.EPs().Len() == 0 })
				require.LessOrEqual(t, w.LeftBytes(), int64(budget))
			}
			const left = budget / (4096 + window.MessageCharge + ucp.DepartedCharge)
			assert.Equal(t, left, w.Tags().Unexpected())
			assert.EqualValues(t, peers-left, counters(w)["worker.dropped_messages"])
			buf := make([]byte, size)
			for i := peers - left; i < peers; i++ {
				require.NoError(t, p.Finish(w.TagRecv(buf, uint64(i), exact, nil, nil)))
				testenv.RequireBytes(t, testenv.Pattern(size, i), buf)
			}
			assert.Zero(t, w.LeftBytes())
			assert.False(t, w.LeftOver())
		})
	}
}

// TestTag_UnexpectedCountMemory: the count of unexpected messages of disconnected peers is near the memory that they
// use, over each transport.
func TestTag_UnexpectedCountMemory(t *testing.T) {
	testenv.SkipRace(t, "the detector uses memory")
	if invariants.Enabled {
		t.Skip("records say who made them")
	}
	for _, tl := range []string{"sm", "tcp", "ud", "rc"} {
		t.Run(tl, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real(tl, tl), ucp.Config{})
			w := p.B.W
			leave := func(n int) {
				for range n {
					p.Connect()
					kept := w.Tags().Unexpected()
					require.NoError(t, p.Finish(p.A.EP.TagSend(1, testenv.Pattern(100, 1), nil)))
					p.Until(func() bool { return w.Tags().Unexpected() > kept })
					require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
					p.Until(func() bool { return w.EPs().Len() == 0 && p.A.W.EPs().Len() == 0 })
				}
			}
			leave(10) // memory that the next peer uses again
			counted, used := w.LeftBytes(), heapInUse()
			const n = 40
			leave(n)
			counted, used = w.LeftBytes()-counted, heapInUse()-used
			t.Logf("%d bytes a message, %d are counted", used/n, counted/n)
			assert.Less(t, used, 2*counted)
			assert.Less(t, counted, 4*used)
		})
	}
}

// heapInUse returns the number of reachable bytes of the heap.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestStream_UnreadIsDropped: unread stream data of disconnected peers is dropped, and does not count for the limit of
// messages.
func TestStream_UnreadIsDropped(t *testing.T) {
	const budget = 64 << 10
	p, _ := ucppair.Fake(t, ucp.Config{EagerBudget: budget}, faketp.LikeTCP())
	w := p.B.W
	p.Connect()
	require.NoError(t, p.Finish(p.A.EP.TagSend(1, testenv.Pattern(1000, 1), nil)))
	p.Until(func() bool { return w.Tags().Unexpected() == 1 })
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	p.Until(func() bool { return w.EPs().Len() == 0 })
	left := w.LeftBytes()
	for range budget / 8000 {
		p.Connect()
		require.NoError(t, p.Finish(p.A.EP.StreamSend(testenv.Pattern(8000, 2), nil)))
		p.Until(func() bool { return w.StreamReady() != nil })
		lent := w.StreamReady().StreamData()
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return w.EPs().Len() == 0 })
		lent.Release()
		require.Equal(t, left, w.LeftBytes())
	}
	buf := make([]byte, 1000)
	require.NoError(t, p.Finish(w.TagRecv(buf, 1, exact, nil, nil)))
	testenv.RequireBytes(t, testenv.Pattern(1000, 1), buf)
}
