package sm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// peerOps are operations that the peer executes, because the memory is registered and
// cross-memory attach is off. Each returns the results of the post.
var peerOps = []struct {
	name string
	post func(e *endpoint, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error)
}{
	{"get bcopy", func(e *endpoint, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
		return e.GetBcopy(make([]byte, 64), raddr, key, c)
	}},
	{"get zcopy", func(e *endpoint, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
		return e.GetZcopy([]uct.IOV{{Buf: make([]byte, 20000)}}, raddr, key, c)
	}},
	{"put zcopy", func(e *endpoint, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
		return e.PutZcopy([]uct.IOV{{Buf: make([]byte, 20000)}}, raddr, key, c)
	}},
	{"fetch", func(e *endpoint, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
		return e.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), raddr, key, c)
	}},
	{"swap", func(e *endpoint, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
		return e.AtomicCSwap(8, 0, 1, new(uint64), raddr, key, c)
	}},
	{"flush", func(e *endpoint, _ uint64, _ uct.RKey, c *uct.Completion) (bool, error) { return e.Flush(c) }},
}

// TestClose_InCompletion: replies for several EPs have arrived when a completion closes one
// of them: each accepted operation completes once.
func TestClose_InCompletion(t *testing.T) {
	w := openTwo(t, Config{CMA: config.No})
	for kind := range peerOps {
		for _, eps := range []int{1, 2, 3} {
			for pair := range eps * eps {
				closer, victim := pair/eps, pair%eps
				t.Run(fmt.Sprintf("%s/%d of %d closes %d", peerOps[kind].name, closer, eps, victim), func(t *testing.T) {
					closeInCompletion(t, w, kind, eps, closer, victim)
				})
			}
		}
	}
}

// closeInCompletion posts a get on each EP, and on closer an operation whose
// completion closes victim, and another get.
func closeInCompletion(t *testing.T, w *two, kind, count, closer, victim int) {
	mem, key := w.register(32<<10, uct.AccessAll)
	var eps []*endpoint
	for range count {
		eps = append(eps, w.a.connect(t, w.b.exchangedInfo()))
	}
	var all []*completion
	post := func(e *endpoint, kind int, c *completion) {
		pending, err := peerOps[kind].post(e, mem.Addr(), key, &c.Completion)
		require.NoError(t, err)
		require.True(t, pending)
		all = append(all, c)
	}
	for i, e := range eps {
		post(e, 0, newCompletion())
		if i == closer {
			c := newCompletion()
			fire := c.Func
			c.Func = func(u *uct.Completion) { fire(u); assert.NoError(t, eps[victim].Close()) }
			post(e, kind, c)
			post(e, 0, newCompletion())
		}
	}
	for range 100 {
		w.b.iface.Progress() // all replies are sent
	}
	for range 100 {
		w.a.iface.Progress()
	}
	for i, c := range all {
		assert.Equal(t, 1, c.fired, "operation %d", i)
	}
	for _, e := range eps {
		require.NoError(t, e.Close())
	}
	require.NoError(t, mem.Close())
}

// TestClose_CompletionPosts: posts from completions of an EP that is being closed fail.
func TestClose_CompletionPosts(t *testing.T) {
	w := openTwo(t, Config{CMA: config.No, Segs: 1})
	mem, key := w.register(4096, uct.AccessAll)
	var refusals []error
	for range 3 {
		c := newCompletion()
		count := c.Func
		c.Func = func(u *uct.Completion) {
			count(u)
			_, err := w.ab.Flush(u)
			refusals = append(refusals, err, w.ab.AMShort(idSink, 0, nil))
		}
		pending, err := w.ab.GetBcopy(make([]byte, 64), mem.Addr(), key, &c.Completion)
		require.NoError(t, err)
		require.True(t, pending)
	}
	require.NoError(t, w.ab.Close())
	require.Len(t, refusals, 6)
	for _, err := range refusals {
		assert.ErrorIs(t, err, uct.ErrClosed)
	}
	require.NoError(t, mem.Close())
}
