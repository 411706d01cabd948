package rccore

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestModeration(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{Moderation: 8, TxDepth: 64})
		put := func() bool {
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
			return ab.core.Sig == ab.core.PI
		}
		var signaled []int
		for i := range 20 {
			if put() {
				signaled = append(signaled, i)
			}
		}
		assert.Equal(t, []int{0, 9, 18}, signaled, "the first of an idle queue, and the one after eight")
		until(t, func() bool { return ab.core.CI >= 19 }, a)
		progressUntilIdle(a)
		assert.EqualValues(t, 19, ab.core.CI, "the rest is not known to be complete")
		flush(t, ab, a)
		assert.EqualValues(t, 21, ab.core.PI, "flush has posted one of no bytes")
		assert.True(t, put(), "the queue is idle again")
		flush(t, ab, a)
		assert.EqualValues(t, 22, ab.core.PI, "the put was signaled, so flush posted nothing")
		pending, err := ab.Flush(nil)
		assert.False(t, pending)
		assert.NoError(t, err)
	})
}

func TestFlush_PollPostsOnce(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{Moderation: 8})
		for range 3 {
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		}
		for range 5 {
			pending, err := ab.Flush(nil)
			require.NoError(t, err)
			assert.True(t, pending)
		}
		assert.EqualValues(t, 4, ab.core.PI)
		until(t, func() bool { return ab.core.CI == ab.core.PI }, a)
		pending, err := ab.Flush(nil)
		require.NoError(t, err)
		assert.False(t, pending)
	})
}

func TestFlush_WithoutCreditsAndRoom(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{FCWindow: 3, TxDepth: 4, RxDepth: 64})
		for range 3 {
			require.NoError(t, ab.AMShort(0, 0, nil))
		}
		require.Equal(t, uct.ErrNoResource, ab.AMShort(0, 0, nil))
		flush(t, ab, a)
		for ab.PutShort([]byte{1}, b.mem.Addr(), b.key) == nil {
		}
		assert.EqualValues(t, 4, ab.core.PI-ab.core.CI, "the queue is full")
		_, err := ab.Flush(nil)
		assert.Equal(t, uct.ErrNoResource, err, "the last is not signaled, and there is no room for one that is")
		until(t, func() bool { return ab.core.PI-ab.core.CI < 4 }, a)
		flush(t, ab, a)
	})
}

func TestFlush_Iface(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		ab2, _ := join(t, a, b)
		idle, _ := join(t, a, b)
		for range 2 {
			for range 3 {
				require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
				require.NoError(t, ab2.PutShort([]byte{1}, b.mem.Addr(), b.key))
			}
			fired := 0
			c := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { fired++; assert.Zero(t, c.Status) }}
			pending, err := a.it.Flush(c)
			require.NoError(t, err)
			require.True(t, pending)
			until(t, func() bool { return fired > 0 }, a)
			assert.Equal(t, 1, fired)
			assert.Equal(t, ab.core.PI, ab.core.CI)
			assert.Equal(t, ab2.core.PI, ab2.core.CI)
			assert.Zero(t, idle.core.PI)
			pending, err = a.it.Flush(nil)
			assert.False(t, pending)
			assert.NoError(t, err)
		}
	})
}

func TestFence_AfterReadsOnly(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		put := func() bool {
			a.it.core.put[0].Flags = 0 // a put that bypasses the core
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
			return a.it.core.put[0].Flags&verbs.SendFence != 0
		}
		require.NoError(t, ab.Fence())
		assert.False(t, put(), "an RC queue is in order by itself")
		require.NoError(t, ab.Fence())
		assert.False(t, put(), "also behind writes")
		_, err := ab.GetBcopy(make([]byte, 8), b.mem.Addr(), b.key, nil)
		require.NoError(t, err)
		require.NoError(t, a.it.Fence())
		assert.True(t, put(), "behind a read that may be under way")
		assert.False(t, put(), "once")
		flush(t, ab, a)
		require.NoError(t, ab.Fence())
		assert.False(t, put(), "the read is complete")
	})
}

// A post that returns ErrNoResource does not consume the fence.
func TestFence_KeptAfterErrNoResource(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		core := a.it.core
		long := make([]byte, 2*slotLen) // needs a bounce buffer
		get := func(dst []byte) error {
			_, err := ab.GetBcopy(dst, b.mem.Addr(), b.key, nil)
			return err
		}
		getZcopy := func() error {
			iov := []uct.IOV{{Buf: a.mem.Bytes()[:64], Mem: a.mem}}
			_, err := ab.GetZcopy(iov, b.mem.Addr(), b.key, &uct.Completion{Count: 1, Func: func(*uct.Completion) {}})
			return err
		}
		noOps := func() (restore func()) {
			kept := core.ops
			core.ops = opPool{total: kept.total}
			return func() { core.ops = kept }
		}
		noBuffers := func() (restore func()) {
			var taken []uint32
			for buf, ok := core.tx.Get(); ok; buf, ok = core.tx.Get() {
				taken = append(taken, buf)
			}
			return func() {
				for _, buf := range taken {
					core.tx.Put(buf)
				}
			}
		}
		for _, tt := range []struct {
			name    string
			exhaust func() (restore func())
			post    func() error
		}{
			{"get into a slot without ops", noOps, func() error { return get(make([]byte, slotLen)) }},
			{"get into a buffer without ops", noOps, func() error { return get(long) }},
			{"get into a buffer without buffers", noBuffers, func() error { return get(long) }},
			{"put from a buffer without buffers", noBuffers, func() error { return ab.PutBcopy(long, b.mem.Addr(), b.key) }},
			{"zcopy without ops", noOps, getZcopy},
		} {
			require.NoError(t, get(make([]byte, 8)), tt.name)
			require.NoError(t, ab.Fence(), tt.name)
			restore := tt.exhaust()
			err := tt.post()
			restore()
			require.Equal(t, uct.ErrNoResource, err, tt.name)
			core.put[0].Flags = 0
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key), tt.name)
			assert.NotZero(t, core.put[0].Flags&verbs.SendFence, "%s: the next post has the fence", tt.name)
			flush(t, ab, a)
		}
	})
}

// A message after a fence waits for the reads before it.
func TestFence_Message(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		_, err := ab.GetBcopy(make([]byte, 8), b.mem.Addr(), b.key, nil)
		require.NoError(t, err)
		require.NoError(t, ab.Fence())
		require.NoError(t, ab.AMShort(0, 0, nil))
		assert.NotZero(t, a.it.core.am[0].Flags&verbs.SendFence)
		a.it.core.am[0].Flags = 0 // a message that bypasses the core
		require.NoError(t, ab.AMShort(0, 0, nil))
		assert.Zero(t, a.it.core.am[0].Flags&verbs.SendFence, "once")
		flush(t, ab, a)
	})
}

// A read to an IOV list counts as a read for Fence. A fence after a completed read sets no flag.
func TestFence_ZcopyList(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		fenced := func() bool {
			a.it.core.put[0].Flags = 0
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
			return a.it.core.put[0].Flags&verbs.SendFence != 0
		}
		require.False(t, fenced())
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:8], Mem: a.mem}, {Buf: a.mem.Bytes()[8:16], Mem: a.mem}}
		_, err := ab.GetZcopy(iov, b.mem.Addr(), b.key, nil)
		require.NoError(t, err)
		require.NoError(t, ab.Fence())
		assert.True(t, fenced(), "the read may be in flight")
		flush(t, ab, a)
		require.NoError(t, ab.Fence())
		assert.False(t, fenced(), "the read is complete")
	})
}

// Zero-copy operations accept exactly as many bytes as their limit.
func TestZcopy_ExactLimit(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		const limit = 4096 // the real one is too large for a test
		a.it.core.maxZcopy = limit
		for _, n := range []int{limit - 1, limit, limit + 1} {
			want := error(nil)
			if n > limit {
				want = uct.ErrTooLong
			}
			mem := a.mem.Bytes()
			iov := []uct.IOV{{Buf: mem[:n-1], Mem: a.mem}, {Buf: mem[n-1 : n], Mem: a.mem}}
			_, err := ab.PutZcopy(iov, b.mem.Addr(), b.key, nil)
			assert.Equal(t, want, err, "put of %d bytes", n)
			_, err = ab.GetZcopy(iov, b.mem.Addr(), b.key, nil)
			assert.Equal(t, want, err, "get of %d bytes", n)
		}
		flush(t, ab, a)
	})
}

// EPs get the slots of the completion queue that other EPs do not use.
func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		cfg := Config{TxDepth: 16, TxCQDepth: 24}
		a, b := over.newSide(t, md, cfg), over.newSide(t, md, Config{})
		one, _ := join(t, a, b)
		two, _ := join(t, a, b)
		fillUp := func(e *endpoint) (n int) {
			for e.PutShort([]byte{1}, b.mem.Addr(), b.key) == nil {
				n++
			}
			return n
		}
		assert.Equal(t, 16, fillUp(one), "its whole queue")
		assert.Equal(t, 8, fillUp(two), "the rest")
		assert.Zero(t, a.it.core.cqFree)
		flush(t, one, a)
		fillUp(two)
		assert.EqualValues(t, 16, two.core.PI-two.core.CI, "with what the idle one holds")
		assert.Less(t, one.core.cqSlots, uint32(16))
		progressUntilIdle(a)
		require.NoError(t, one.Close())
		require.NoError(t, two.Close())
		until(t, func() bool { return a.it.core.cqFree == 24 }, a)
	})
}

// Bounce buffers of unsignaled work requests become free again.
func TestBcopy_PoolExhausted(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{TxBuffers: 4, Moderation: 64, SegSize: 1 << 10})
		want := make([]byte, 1<<10)
		(&fill{1 << 10}).Pack(want)
		for range 50 {
			err := ab.PutBcopy(want, b.mem.Addr(), b.key)
			if err == uct.ErrNoResource {
				require.Positive(t, a.it.core.tx.Free()+int(ab.core.Sig-ab.core.CI), "some completion must be on its way")
				until(t, func() bool { return a.it.core.tx.Free() > 0 }, a)
				continue
			}
			require.NoError(t, err)
		}
		flush(t, ab, a)
		assert.Equal(t, 4, a.it.core.tx.Free())
		assert.True(t, bytes.Equal(want, b.mem.Bytes()[:1<<10]))
	})
}

// Idle endpoints with as many unsignaled work requests as were allowed with fewer endpoints do not
// block the slots of the completion queue.
func TestModeration_GrowingNumberOfEPs(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const eps = 40
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{TxDepth: 32, TxCQDepth: 63}), over.newSide(t, md, Config{})
		for range eps {
			ab, _ := join(t, a, b)
			put := func() {
				until(t, func() bool { return ab.PutShort([]byte{1}, b.mem.Addr(), b.key) != uct.ErrNoResource }, a)
			}
			for range a.it.core.Moderation {
				put()
			}
			until(t, func() bool { return ab.core.CI >= ab.core.Sig }, a)
			put() // the put in the last slot may be unsignaled
		}
		silent := uint64(0)
		until(t, func() bool {
			silent = 0
			for _, e := range a.it.core.open.All() {
				if e.Sig <= e.CI {
					silent += e.PI - e.CI
				}
			}
			return silent <= 63/2
		}, a)
		assert.Empty(t, a.errs)
	})
}

// Flush of an iface returns ErrNoResource while one of its EPs has no slot.
func TestFlush_IfaceWithoutRoom(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{TxDepth: 4, TxCQDepth: 4})
		for ab.PutShort([]byte{1}, b.mem.Addr(), b.key) == nil {
		}
		_, err := a.it.Flush(nil)
		assert.Equal(t, uct.ErrNoResource, err)
		fired := 0
		c := &uct.Completion{Count: 1, Func: func(*uct.Completion) { fired++ }}
		_, err = a.it.Flush(c)
		assert.Equal(t, uct.ErrNoResource, err)
		assert.Equal(t, 1, c.Count, "it is the caller's")
		until(t, func() bool { return ab.core.PI-ab.core.CI < 4 }, a)
		pending, err := a.it.Flush(c)
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return fired > 0 }, a)
		assert.Equal(t, ab.core.PI, ab.core.CI)
	})
}

// Progress returns the number of completions that it has handled.
func TestProgress_Counts(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		handled := func() (n int) {
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				n += a.it.Progress()
				return ab.core.CI == ab.core.PI
			})
			return n
		}
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		assert.Equal(t, 1, handled(), "the first of an idle queue is signaled")
		require.NoError(t, ab.AMShort(0, 0, nil))
		assert.Equal(t, 1, handled())
		assert.Zero(t, a.it.Progress())
	})
}

// After any outcome, a completed op references nothing of its user. If it did, the next use of the
// op would call the completion of the previous user.
func TestOps_KeepNoReferences(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		var a, b *side
		var ab *endpoint
		var iov []uct.IOV
		ended := 0
		comp := func() *uct.Completion {
			return &uct.Completion{Count: 1, Func: func(*uct.Completion) { ended++ }}
		}
		var results [4]uint64
		all := []func(key uct.RKey) (bool, error){
			func(uct.RKey) (bool, error) { return ab.AMZcopy(0, make([]byte, 8), iov, comp()) },
			func(key uct.RKey) (bool, error) { return ab.PutZcopy(iov, b.mem.Addr(), key, comp()) },
			func(key uct.RKey) (bool, error) { return ab.GetZcopy(iov, b.mem.Addr(), key, comp()) },
			func(key uct.RKey) (bool, error) {
				return ab.GetBcopy(make([]byte, 8), b.mem.Addr(), key, comp())
			},
			func(key uct.RKey) (bool, error) {
				return ab.GetBcopy(make([]byte, 1024), b.mem.Addr(), key, comp())
			},
			func(key uct.RKey) (bool, error) {
				return ab.AtomicFetch(uct.AtomicAdd, 8, 1, &results[0], b.mem.Addr(), key, comp())
			},
			func(key uct.RKey) (bool, error) {
				return ab.AtomicCSwap(8, 1, 2, &results[1], b.mem.Addr(), key, comp())
			},
			func(uct.RKey) (bool, error) { return ab.Flush(comp()) },
		}
		for name, wrong := range map[string]uct.RKey{"well": 0, "with an error": 0xff00} {
			a, b, ab, _ = over.pair(t, Config{})
			ended, iov = 0, []uct.IOV{{Buf: a.mem.Bytes()[:256], Mem: a.mem}}
			key, wanted := b.key^wrong, 0
			for _, post := range all {
				for range 2 { // the first one may use the waiter
					_ = ab.PutBcopy(make([]byte, 1024), b.mem.Addr(), key)
					var pending bool
					var err error
					until(t, func() bool { pending, err = post(key); return err != uct.ErrNoResource }, a, b)
					if err == nil {
						require.True(t, pending)
						wanted++
						continue
					}
					require.ErrorIs(t, err, uct.ErrEPFailed)
					require.NotZero(t, wrong)
				}
			}
			pool := &a.it.core.ops
			until(t, func() bool { return ended == wanted && pool.freeCount == pool.total }, a, b)
			n := 0
			for o := pool.free; o != nil; o = o.next {
				assert.Nil(t, o.comp, name)
				assert.Nil(t, o.dst, name)
				assert.Nil(t, o.result, name)
				assert.EqualValues(t, noBuffer, o.buf, name)
				n++
			}
			assert.Equal(t, pool.freeCount, n)
		}
	})
}

// An EP reserves many slots of the completion queue at a time while unused ones exist, and single
// ones if all are used.
func TestSlots_Scarce(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, _, ab, _ := over.pair(t, Config{TxDepth: 64, TxCQDepth: 256})
		it := a.it.core
		require.True(t, ab.core.reserveSlot())
		assert.EqualValues(t, reserveStep, ab.core.cqSlots)
		assert.Equal(t, 256-reserveStep, it.cqFree)
		require.True(t, ab.core.reserveSlot(), "it has some")
		assert.EqualValues(t, reserveStep, ab.core.cqSlots)

		it.slotsInUse = true
		ab.core.PI += reserveStep // as if the slots were used
		require.True(t, ab.core.reserveSlot())
		assert.EqualValues(t, reserveStep+1, ab.core.cqSlots)
		assert.True(t, it.slotsInUse, "others are as scarce")
		ab.core.PI -= reserveStep
	})
}
