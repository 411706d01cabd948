package regcache

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// rig is a cache over a device, and memory to register.
type rig struct {
	*Cache[*piece]
	t      testing.TB
	dev    *device
	memory []byte
}

func newRig(t testing.TB, cfg Config) *rig {
	require.NoError(t, cfg.Validate())
	dev := &device{}
	return &rig{New(dev, cfg), t, dev, make([]byte, 1000)}
}

// get gets the memory from offset off on.
func (r *rig) get(off, n int, access uct.Access) *Entry[*piece] {
	r.t.Helper()
	e, err := r.Get(r.memory[off:off+n], access)
	require.NoError(r.t, err)
	return e
}

// use gets an entry and puts it.
func (r *rig) use(off, n int) { r.Put(r.get(off, n, 0)) }

// registered returns the regions of the device.
func (r *rig) registered() string { return list(r.memory, r.dev.open) }

func TestCache_Hits(t *testing.T) {
	r := newRig(t, Config{})
	a := r.get(100, 100, 0)
	assert.Same(t, a, r.get(100, 100, 0), "while it is in use")
	r.Put(a)
	r.Put(a)
	assert.Same(t, a, r.get(100, 1, 0), "a part at the beginning, of what is idle")
	assert.Same(t, a, r.get(199, 1, 0), "at the end")
	assert.NotSame(t, a, r.get(99, 2, 0), "before it")
	assert.NotSame(t, a, r.get(199, 2, 0), "beyond it")
	assert.NotSame(t, a, r.get(0, 100, 0), "next to it")
	assert.Equal(t, "100+100 99+2 199+2 0+100", r.registered())
}

func TestCache_RightsAreThoseAskedFor(t *testing.T) {
	r := newRig(t, Config{})
	all := r.get(0, 100, uct.AccessAll)
	read := r.get(0, 100, uct.AccessRemoteRead)
	assert.NotSame(t, all, read, "the key of a reader gives no write access")
	assert.Equal(t, uct.AccessRemoteRead, read.Mem.access)
	assert.Same(t, all, r.get(50, 5, uct.AccessAll))
	assert.Same(t, read, r.get(50, 5, uct.AccessRemoteRead))
	_, err := r.Get(r.memory, uct.AccessAll+1)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = r.Get(nil, 0)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = r.Get(r.memory[5:5], 0)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam, "no bytes within what is registered")
	assert.Equal(t, 2, r.dev.calls)
}

func TestCache_LargerReplacesWhatItCovers(t *testing.T) {
	r := newRig(t, Config{})
	used := r.get(20, 10, 0)
	r.use(40, 10)
	r.use(10, 5)
	r.use(95, 10)
	r.use(10, 90)
	assert.Equal(t, "20+10 95+10 10+90", r.registered(), "entries in use remain, and those that are not covered")
	assert.NotSame(t, used, r.get(20, 10, 0))
	r.Put(used)
	assert.Equal(t, "95+10 10+90", r.registered())
}

func TestCache_LeastRecentlyUsedGoesFirst(t *testing.T) {
	r := newRig(t, Config{MaxRegions: 3})
	r.use(0, 10)
	r.use(10, 10)
	r.use(20, 10)
	r.use(0, 10)
	assert.Equal(t, "0+10 10+10 20+10", r.registered())
	r.use(30, 10)
	assert.Equal(t, "0+10 20+10 30+10", r.registered())
	r.use(40, 10)
	assert.Equal(t, "0+10 30+10 40+10", r.registered())
}

func TestCache_BytesAreBounded(t *testing.T) {
	r := newRig(t, Config{MaxSize: 100})
	r.use(0, 40)
	r.use(40, 40)
	assert.Equal(t, "0+40 40+40", r.registered())
	r.use(80, 60)
	assert.Equal(t, "40+40 80+60", r.registered())
	r.use(200, 101)
	assert.Equal(t, "40+40 80+60", r.registered(), "an entry above the limit evicts no others")
	a, b := r.get(400, 100, 0), r.get(500, 100, 0)
	assert.Equal(t, "40+40 80+60 400+100 500+100", r.registered(), "entries in use do not count")
	r.Put(a)
	r.Put(b)
	assert.Equal(t, "500+100", r.registered())
}

func TestCache_KeepsNothing(t *testing.T) {
	r := newRig(t, Config{MaxSize: config.MemZero})
	a := r.get(0, 10, 0)
	assert.Same(t, a, r.get(0, 10, 0), "shared while it is used")
	r.Put(a)
	assert.Equal(t, "0+10", r.registered())
	r.Put(a)
	assert.Empty(t, r.registered())
}

func TestCache_Invalidate(t *testing.T) {
	r := newRig(t, Config{})
	r.use(0, 10)
	r.use(10, 10)
	r.Put(r.get(5, 10, uct.AccessAll))
	used := r.get(20, 10, 0)
	require.NoError(t, r.Invalidate(r.memory[8:12]))
	assert.Equal(t, "20+10", r.registered(), "with any access")
	require.NoError(t, r.Invalidate(r.memory[30:40]), "no byte of it")
	require.NoError(t, r.Invalidate(nil))
	assert.Equal(t, ucs.ErrBusy, r.Invalidate(r.memory[29:40]))
	assert.False(t, used.Mem.over, "it is in use")
	assert.Equal(t, ucs.ErrBusy, r.Invalidate(r.memory[29:40]), "still")
	next := r.get(20, 10, 0)
	assert.NotSame(t, used, next, "not found any more")
	r.Put(next)
	r.Put(used)
	assert.True(t, used.Mem.over)
	assert.Equal(t, "20+10", r.registered(), "the next one")
	require.NoError(t, r.Invalidate(r.memory))
	assert.Empty(t, r.registered())
}

func TestCache_Purge(t *testing.T) {
	r := newRig(t, Config{})
	used := r.get(0, 10, 0)
	r.use(10, 10)
	r.use(20, 10)
	require.NoError(t, r.Purge())
	assert.Equal(t, "0+10", r.registered())
	assert.Same(t, used, r.get(0, 10, 0), "an entry in use remains")
}

func TestCache_Close(t *testing.T) {
	r := newRig(t, Config{})
	used := r.get(0, 10, 0)
	r.use(10, 10)
	assert.Equal(t, ucs.ErrBusy, r.Close())
	assert.Equal(t, "0+10", r.registered())
	_, err := r.Get(r.memory[:10], 0)
	assert.ErrorIs(t, err, ucs.ErrClosed)
	r.Put(used)
	assert.Empty(t, r.registered())
	assert.NoError(t, r.Close())
	assert.NoError(t, r.Close())
}

// TestCache_WhatPeersAreInside: an entry that a peer accesses cannot be deregistered. It is not found any more, and
// deregistering is retried.
func TestCache_WhatPeersAreInside(t *testing.T) {
	r := newRig(t, Config{MaxRegions: 1})
	e := r.get(0, 10, uct.AccessRemoteRead)
	mem := e.Mem
	mem.visited = true
	r.Put(e)
	r.use(10, 10)
	assert.Equal(t, "0+10 10+10", r.registered())
	assert.NotSame(t, e, r.get(0, 10, uct.AccessRemoteRead))
	var inUse *ucs.InUseError
	assert.ErrorAs(t, r.Purge(), &inUse)
	assert.ErrorAs(t, r.Invalidate(r.memory[:1]), &inUse, "it must not be unmapped")
	assert.NoError(t, r.Invalidate(r.memory[10:]))
	err := r.Close()
	assert.ErrorAs(t, err, &inUse)
	assert.ErrorIs(t, err, ucs.ErrBusy)
	mem.visited = false
	assert.Equal(t, ucs.ErrBusy, r.Close(), "the one of the second Get")
	assert.True(t, mem.over)
}

func TestCache_RegistersAgainWithNothingIdle(t *testing.T) {
	r := newRig(t, Config{})
	r.dev.room = 2
	r.use(0, 10)
	used := r.get(10, 10, 0)
	e := r.get(20, 10, 0)
	assert.Equal(t, "10+10 20+10", r.registered())
	calls := r.dev.calls
	_, err := r.Get(r.memory[30:40], 0)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.Equal(t, calls+1, r.dev.calls, "nothing was idle")
	r.Put(used)
	r.Put(e)

	for _, tc := range []struct {
		err   error
		calls int
	}{
		{fmt.Errorf("register memory: %w", unix.ENOMEM), 2},
		{ucs.ErrInvalidParam, 1},
		{errors.New("device is gone"), 1},
	} {
		r.dev.err = nil
		r.use(0, 10)
		calls, r.dev.err = r.dev.calls, tc.err
		_, err := r.Get(r.memory[30:40], 0)
		assert.Equal(t, tc.err, err)
		assert.Equal(t, tc.calls, r.dev.calls-calls, "%v", tc.err)
	}
	r.dev.err = nil
	assert.NoError(t, r.Close())
}

func TestCache_Discard(t *testing.T) {
	r := newRig(t, Config{})
	a := r.get(0, 10, 0)
	assert.Same(t, a, r.get(0, 10, 0))
	r.Discard(a)
	r.Discard(a)
	b := r.get(0, 10, 0)
	assert.NotSame(t, a, b, "not found any more")
	r.Put(a)
	assert.False(t, a.Mem.over, "another operation uses it")
	r.Put(a)
	assert.True(t, a.Mem.over)
	r.Put(b)
	assert.Equal(t, "0+10", r.registered())
}

func TestCache_Counts(t *testing.T) {
	r := newRig(t, Config{MaxRegions: 1})
	root := stats.New("cache")
	r.AddStats(root)
	r.use(0, 10)
	r.use(0, 10)
	r.use(0, 5)
	r.use(10, 10)
	assert.Equal(t, `{"name":"cache","counters":[{"name":"hits","n":2},{"name":"misses","n":2},{"name":"evictions","n":1}]}`, root.String())
}

// TestConfig_Adds: registering adds a lookup and a share of its cost to an operation, unless the configuration has a
// value.
func TestConfig_Adds(t *testing.T) {
	cost := uct.Cost{Send: 1600, Bandwidth: 1e9}
	var cfg Config
	assert.EqualValues(t, 40_000+25_000, cfg.Adds(cost, 0), "picoseconds")
	assert.EqualValues(t, 40_000+50_000, cfg.Adds(cost, 1600))
	cfg.Overhead = 7
	assert.EqualValues(t, 7000, cfg.Adds(cost, 1600))
	cfg.Overhead = -1
	assert.ErrorIs(t, cfg.Validate(), ucs.ErrInvalidParam)
}

func TestCache_PutTwice(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("only builds with invariants look")
	}
	r := newRig(t, Config{})
	e := r.get(0, 10, 0)
	r.Put(e)
	assert.Panics(t, func() { r.Put(e) })
}

func TestConfig_Infinite(t *testing.T) {
	r := newRig(t, Config{MaxSize: config.MemInf})
	r.use(0, 1000)
	assert.Equal(t, "0+1000", r.registered())
}

func TestCache_HitsDoNotAllocate(t *testing.T) {
	r := newRig(t, Config{})
	for off := 0; off < 1000; off += 10 {
		r.use(off, 10)
	}
	i := 0
	testenv.NoAllocs(t, "hit", func() {
		i = (i + 37) % 100
		e, _ := r.Get(r.memory[i*10:i*10+10], 0)
		r.Put(e)
	})
	assert.Equal(t, 100, r.dev.calls)
}

func BenchmarkHit(b *testing.B) {
	for _, entries := range []int{1, 256} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			c, memory := New(&device{}, Config{}), make([]byte, entries*64)
			for i := range entries {
				e, err := c.Get(memory[i*64:i*64+64], 0)
				require.NoError(b, err)
				c.Put(e)
			}
			order := rand.New(rand.NewSource(1)).Perm(entries)
			for i := 0; b.Loop(); i++ {
				at := order[i%entries] * 64
				e, _ := c.Get(memory[at:at+64], 0)
				c.Put(e)
			}
		})
	}
}
