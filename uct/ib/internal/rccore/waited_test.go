package rccore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// order creates completions that record the order of their calls.
type order struct {
	t     testing.TB
	next  int
	ended []int
}

func (o *order) get() *uct.Completion {
	id := o.next
	o.next++
	return &uct.Completion{Count: 1, Func: func(c *uct.Completion) {
		assert.Equal(o.t, ucs.StatusOK, c.Status)
		o.ended = append(o.ended, id)
	}}
}

// Of many zero-copy puts only the first is signaled, and all complete without a flush.
func TestWaited_FewCompletions(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		const puts = 40
		o := &order{t: t}
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:1000], Mem: a.mem}}
		for range puts {
			pending, err := ab.PutZcopy(iov, b.mem.Addr(), b.key, o.get())
			require.NoError(t, err)
			require.True(t, pending)
		}
		handled := 0
		until(t, func() bool { handled += a.it.Progress(); return len(o.ended) == puts }, a)
		assert.LessOrEqual(t, handled, 2, "the first put, and a work request behind the last")
		assert.Equal(t, uint64(puts+1), ab.core.PI)
	})
}

// A single operation with a completion is signaled, also after unsignaled short ones.
func TestWaited_SingleIsSignaled(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		o := &order{t: t}
		for range 5 {
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key)) // the first is signaled
		}
		until(t, func() bool { return ab.core.CI != 0 }, a)
		require.NotEqual(t, ab.core.PI, ab.core.CI)
		posted := ab.core.PI
		_, err := ab.GetBcopy(make([]byte, 8), b.mem.Addr(), b.key, o.get())
		require.NoError(t, err)
		assert.Equal(t, posted+1, ab.core.Sig)
		until(t, func() bool { return len(o.ended) == 1 }, a)
		assert.Equal(t, posted+1, ab.core.PI, "no work request behind it")
	})
}

// All mixes of operations, in queues of any length, complete once, in the order in which they were
// posted, with the correct data, and need only Progress.
func TestWaited_Order(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		for seed := range uint64(testenv.Rounds(20, 200)) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			cfg := Config{TxDepth: 4 << rnd.IntN(5), TxCQDepth: 8 << rnd.IntN(6), TxBuffers: 4 << rnd.IntN(4)}
			a, b, ab, _ := over.pair(t, cfg)
			o := &order{t: t}
			got := map[int][]byte{} // by offset
			far := b.mem.Bytes()
			for i := range far[4096:8192] {
				far[4096+i] = byte(rnd.Uint32())
			}
			iov := []uct.IOV{{Buf: a.mem.Bytes()[:300], Mem: a.mem}}
			for range 500 {
				var pending bool
				var err error
				posted, buf, at := o.next, []byte(nil), 0
				switch rnd.IntN(9) {
				case 0:
					err = ab.PutShort([]byte{1}, b.mem.Addr(), b.key)
				case 1:
					err = ab.PutBcopy(make([]byte, 200), b.mem.Addr(), b.key)
				case 2:
					pending, err = ab.PutZcopy(iov, b.mem.Addr()+1024, b.key, o.get())
				case 3:
					_, err = ab.PutZcopy(iov, b.mem.Addr()+1024, b.key, nil)
				case 4:
					buf, at = make([]byte, 1+rnd.IntN(200)), 4096+rnd.IntN(3800)
					pending, err = ab.GetBcopy(buf, b.mem.Addr()+uint64(at), b.key, o.get())
				case 5:
					err = ab.AtomicPost(uct.AtomicAdd, 8, 1, b.mem.Addr()+8192, b.key)
				case 6:
					pending, err = ab.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), b.mem.Addr()+8192, b.key, o.get())
				case 7:
					pending, err = ab.Flush(o.get())
				case 8:
					a.it.Progress()
				}
				if err != nil {
					require.Equal(t, uct.ErrNoResource, err)
					a.it.Progress()
				}
				if !pending {
					o.next = posted
				} else if buf != nil {
					got[at] = buf
				}
			}
			until(t, func() bool { return len(o.ended) == o.next }, a)
			for i, id := range o.ended {
				require.Equal(t, i, id)
			}
			for at, buf := range got {
				require.Equal(t, far[at:at+len(buf)], buf)
			}
			flush(t, ab, a)
			require.Equal(t, a.it.core.ops.total, a.it.core.ops.freeCount)
			require.Equal(t, a.it.core.cfg.TxBuffers, a.it.core.tx.Free())
		}
	})
}

// More EPs than have a slot of their own can post atomics at the same time, and closed EPs free
// their slots.
func TestWaited_Slots(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{TxDepth: 8, TxCQDepth: 512}), over.newSide(t, md, Config{TxDepth: 8, TxCQDepth: 512})
		free := a.it.core.slots.Free()
		var eps []*endpoint
		for range 2 {
			o := &order{t: t}
			results := make([]uint64, 2*(epSlots+5))
			for i := range epSlots + 5 {
				ep, _ := join(t, a, b)
				eps = append(eps, ep)
				for k := range 2 {
					_, err := ep.AtomicFetch(uct.AtomicAdd, 8, 1, &results[2*i+k], b.mem.Addr(), b.key, o.get())
					require.NoError(t, err)
				}
			}
			until(t, func() bool { return len(o.ended) == len(results) }, a, b)
			first := results[0]
			for i, v := range results {
				require.Equal(t, first+uint64(i), v)
			}
			for _, ep := range eps {
				require.NoError(t, ep.Close())
			}
			eps = nil
			until(t, func() bool { return a.it.core.closing.Len() == 0 }, a, b)
			assert.Equal(t, free-a.it.core.ops.total, a.it.core.slots.Free())
		}
	})
}

// A zero-copy message is also signaled after work requests in flight, so the next poll completes
// it: a sender that has computed in the meantime does not wait for another round trip.
func TestWaited_MessageIsSignaled(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		require.NoError(t, b.it.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { return true })))
		const messages = 3
		o := &order{t: t}
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		for range messages {
			pending, err := ab.AMZcopy(3, nil, []uct.IOV{{Buf: a.mem.Bytes()[:1000], Mem: a.mem}}, o.get())
			require.NoError(t, err)
			require.True(t, pending)
			assert.Equal(t, ab.core.PI, ab.core.Sig)
		}
		until(t, func() bool { return len(o.ended) == messages }, a, b)
		assert.EqualValues(t, 1+messages, ab.core.PI, "nothing else was posted to learn of them")
	})
}

// shared posts operations of one EP that share two completions, which are never called, and two
// results.
type shared struct {
	t      *testing.T
	ab     *endpoint
	b      *side
	iov    []uct.IOV
	comps  [2]uct.Completion
	posted [2]int // number of operations of each of comps
	words  [2]uint64
	last   [2]int // the number of the last fetch into each of words, from 1
	adds   int
	fired  int // flushes
}

// never is a Count that never reaches 0.
const never = 1 << 30

// post posts an operation with a completion, and counts it if the EP had resources.
func (s *shared) post(rnd *rand.Rand) (err error) {
	i := rnd.IntN(2)
	c, pending := &s.comps[i], false
	c.Count++
	switch kind, word := rnd.IntN(4), rnd.IntN(2); kind {
	case 0:
		pending, err = s.ab.PutZcopy(s.iov, s.b.mem.Addr()+1024, s.b.key, c)
	case 1:
		pending, err = s.ab.GetZcopy(s.iov, s.b.mem.Addr()+1024, s.b.key, c)
	default:
		pending, err = s.ab.AtomicFetch(uct.AtomicAdd, 8, 1, &s.words[word], s.b.mem.Addr()+8192, s.b.key, c)
		if pending {
			s.adds++
			s.last[word] = s.adds
		}
	}
	if !pending {
		c.Count--
		return err
	}
	s.posted[i]++
	return err
}

// flush starts a flush. When it completes, all operations before it and none after it must be
// complete.
func (s *shared) flush() error {
	before := s.posted
	pending, err := s.ab.Flush(&uct.Completion{Count: 1, Func: func(c *uct.Completion) {
		s.fired++
		assert.Equal(s.t, ucs.StatusOK, c.Status)
		for i := range s.comps {
			assert.Equal(s.t, s.posted[i]-before[i], s.comps[i].Count-never)
		}
	}})
	if !pending && err == nil {
		s.fired++
	}
	return err
}

// Operations that share completions and results complete in order with the flushes between them,
// for any number of work requests per completion.
func TestWaited_Shared(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		for seed := range uint64(testenv.Rounds(20, 200)) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			a, b, ab, _ := over.pair(t, Config{TxDepth: 8 << rnd.IntN(5), Moderation: 1 + rnd.IntN(8)})
			s := &shared{t: t, ab: ab, b: b, iov: []uct.IOV{{Buf: a.mem.Bytes()[:300], Mem: a.mem}}}
			for i := range s.comps {
				s.comps[i] = uct.Completion{Count: never, Func: func(*uct.Completion) { t.Error("fired") }}
			}
			flushes := 0
			for range 300 {
				err := error(nil)
				if rnd.IntN(6) > 0 {
					err = s.post(rnd)
				} else if err = s.flush(); err == nil {
					flushes++
				}
				if err != nil {
					require.Equal(t, uct.ErrNoResource, err)
					a.it.Progress()
				}
			}
			until(t, func() bool { return s.fired >= flushes && s.comps[0].Count+s.comps[1].Count == 2*never }, a)
			for i, n := range s.last {
				require.EqualValues(t, n-1, s.words[i])
			}
			require.Equal(t, a.it.core.ops.total, a.it.core.ops.freeCount)
		}
	})
}

// Operations that share a completion, and a result if they have one, need no op.
func TestWaited_ShareWaiter(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		const n = 100
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:1000], Mem: a.mem}}
		word := new(uint64)
		for name, post := range map[string]func(c *uct.Completion) (bool, error){
			"puts": func(c *uct.Completion) (bool, error) { return ab.PutZcopy(iov, b.mem.Addr(), b.key, c) },
			"gets": func(c *uct.Completion) (bool, error) { return ab.GetZcopy(iov, b.mem.Addr(), b.key, c) },
			"adds": func(c *uct.Completion) (bool, error) {
				return ab.AtomicFetch(uct.AtomicAdd, 8, 1, word, b.mem.Addr()+8192, b.key, c)
			},
			"swaps": func(c *uct.Completion) (bool, error) {
				return ab.AtomicCSwap(8, n, 1, word, b.mem.Addr()+8192, b.key, c)
			},
		} {
			fired := 0
			c := &uct.Completion{Count: n, Func: func(*uct.Completion) { fired++ }}
			for range n {
				pending, err := post(c)
				require.NoError(t, err, name)
				require.True(t, pending, name)
			}
			assert.Equal(t, a.it.core.ops.total, a.it.core.ops.freeCount, name)
			until(t, func() bool { return fired == 1 }, a)
			flush(t, ab, a)
		}
	})
}

// refusing is a send queue that returns an error for one work request.
type refusing struct {
	SendQueue
	e *EP
}

func (q refusing) PostSend([]verbs.SendWR) (int, error) {
	q.e.send = q.SendQueue
	return 0, ucs.ErrIO
}

// If operations share a completion and the device refuses one, the completion counts each of the
// others once.
func TestWaited_PostFails(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		for _, before := range []int{0, 1, 3} {
			a, b, ab, _ := over.pair(t, Config{})
			e, fired := ab.core, 0
			c := &uct.Completion{Count: before + 1, Func: func(*uct.Completion) { fired++ }}
			iov := []uct.IOV{{Buf: a.mem.Bytes()[:1000], Mem: a.mem}}
			for i := range before {
				post := e.PutZcopy
				if i%2 == 1 {
					post = e.GetZcopy
				}
				pending, err := post(iov, b.mem.Addr(), b.key, c)
				require.NoError(t, err)
				require.True(t, pending)
			}
			e.send = refusing{e.send, e}
			pending, err := e.PutZcopy(iov, b.mem.Addr(), b.key, c)
			require.ErrorIs(t, err, uct.ErrEPFailed)
			require.False(t, pending)
			until(t, func() bool { return c.Count <= 1 }, a)
			require.Zero(t, fired)
			require.Equal(t, 1, c.Count, "the caller accounts for what was refused")
			require.NoError(t, ab.Close())
			require.Len(t, a.errs, 1)
		}
	})
}
