package regcache

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// model is a simple model of a cache over a device, which searches all regions each time.
type model struct {
	cfg     Config
	room    int
	regions []*modelRegion // in the order in which they were registered
	clock   int
}

type modelRegion struct {
	off, n  int
	access  uct.Access
	users   int
	found   bool // by Get
	visited bool
	put     int // time of the last put
}

// hit returns the region that covers a range, of several the one that starts last; nil if there is none.
func (m *model) hit(off, n int, access uct.Access) (best *modelRegion) {
	for _, r := range m.regions {
		covers := r.found && r.access == access && r.off <= off && off+n <= r.off+r.n
		if covers && (best == nil || best.off < r.off) {
			best = r
		}
	}
	return best
}

// get returns nil for ErrNoMemory.
func (m *model) get(off, n int, access uct.Access) *modelRegion {
	if r := m.hit(off, n, access); r != nil {
		r.users++
		return r
	}
	if m.room > 0 && len(m.regions) >= m.room {
		for _, r := range m.regions {
			if r.users == 0 {
				r.found = false
			}
		}
		m.settle(0, 1<<30)
		if len(m.regions) >= m.room {
			return nil
		}
	}
	for _, r := range slices.Clone(m.regions) {
		if r.found && r.access == access && off <= r.off && r.off+r.n <= off+n {
			r.found = false
			m.settleOne(r)
		}
	}
	r := &modelRegion{off: off, n: n, access: access, users: 1, found: true}
	m.regions = append(m.regions, r)
	return r
}

func (m *model) put(r *modelRegion) {
	r.users--
	m.clock++
	r.put = m.clock
	if r.users > 0 {
		return
	}
	if !r.found || uint64(r.n) > m.cfg.maxSize() {
		r.found = false
		m.settleOne(r)
		return
	}
	for m.idleBytes() > m.cfg.maxSize() || len(m.idle()) > m.cfg.maxRegions() {
		oldest := slices.MinFunc(m.idle(), func(a, b *modelRegion) int { return a.put - b.put })
		oldest.found = false
		m.settleOne(oldest)
	}
}

func (m *model) idle() (out []*modelRegion) {
	for _, r := range m.regions {
		if r.found && r.users == 0 {
			out = append(out, r)
		}
	}
	return out
}

func (m *model) idleBytes() (n uint64) {
	for _, r := range m.idle() {
		n += uint64(r.n)
	}
	return n
}

// settle deregisters regions with a byte in the range that are not found any more, unless they are in use or visited.
// It returns the rest.
func (m *model) settle(off, n int) (rest []*modelRegion) {
	for _, r := range slices.Clone(m.regions) {
		if !r.found && r.off < off+n && off < r.off+r.n && !m.settleOne(r) {
			rest = append(rest, r)
		}
	}
	return rest
}

func (m *model) settleOne(r *modelRegion) bool {
	if r.users > 0 || r.visited {
		return false
	}
	m.regions = slices.DeleteFunc(m.regions, func(o *modelRegion) bool { return o == r })
	return true
}

// invalidate invalidates the range, and returns the regions that remain.
func (m *model) invalidate(off, n int) []*modelRegion {
	for _, r := range m.regions {
		if r.off < off+n && off < r.off+r.n {
			r.found = false
		}
	}
	return m.settle(off, n)
}

// pair is a use of an entry, with that of the model.
type pair struct {
	e *Entry[*piece]
	r *modelRegion
}

// machine is a cache and its model.
type machine struct {
	c      *Cache[*piece]
	dev    *device
	m      *model
	memory []byte
	uses   []pair
}

const modelBytes = 64

func newMachine(t *rapid.T) *machine {
	cfg := Config{
		MaxSize:    rapid.SampledFrom([]config.MemSize{config.MemZero, 10, 40, 100, config.MemInf}).Draw(t, "bytes"),
		MaxRegions: rapid.IntRange(1, 5).Draw(t, "regions"),
	}
	room := rapid.SampledFrom([]int{0, 1, 3, 6}).Draw(t, "room")
	dev := &device{room: room}
	return &machine{c: New(dev, cfg), dev: dev, m: &model{cfg: cfg, room: room}, memory: make([]byte, modelBytes)}
}

// part draws a range that is not empty.
func part(t *rapid.T) (off, n int) {
	off = rapid.IntRange(0, modelBytes-1).Draw(t, "offset")
	return off, rapid.IntRange(1, modelBytes-off).Draw(t, "n")
}

func (x *machine) get(t *rapid.T) {
	off, n := part(t)
	access := rapid.SampledFrom([]uct.Access{0, uct.AccessLocalWrite, uct.AccessAll}).Draw(t, "access")
	calls, hit := x.dev.calls, x.m.hit(off, n, access)
	e, err := x.c.Get(x.memory[off:off+n], access)
	want := x.m.get(off, n, access)
	if want == nil {
		require.ErrorIs(t, err, ucs.ErrNoMemory)
		return
	}
	require.NoError(t, err)
	require.Equal(t, hit != nil, calls == x.dev.calls, "a hit registers nothing")
	for _, u := range x.uses {
		require.Equal(t, u.r == want, u.e == e)
	}
	x.uses = append(x.uses, pair{e, want})
}

func (x *machine) put(t *rapid.T) {
	if len(x.uses) == 0 {
		t.Skip("nothing is in use")
	}
	i := rapid.IntRange(0, len(x.uses)-1).Draw(t, "use")
	u := x.uses[i]
	x.uses = slices.Delete(x.uses, i, i+1)
	x.c.Put(u.e)
	x.m.put(u.r)
}

func (x *machine) invalidate(t *rapid.T) {
	off, n := part(t)
	checkRest(t, x.m.invalidate(off, n), x.c.Invalidate(x.memory[off:off+n]))
}

// checkRest compares an error with the regions that the model has left.
func checkRest(t *rapid.T, rest []*modelRegion, err error) {
	require.Equal(t, len(rest) > 0, err != nil, "%v", err)
	used := slices.ContainsFunc(rest, func(r *modelRegion) bool { return r.users > 0 })
	require.Equal(t, used, errors.Is(err, ucs.ErrBusy))
	stuck := slices.ContainsFunc(rest, func(r *modelRegion) bool { return r.users == 0 })
	require.Equal(t, stuck, errors.Is(err, ucs.ErrTimedOut))
}

func (x *machine) purge(t *rapid.T) {
	for _, r := range x.m.idle() {
		r.found = false
	}
	rest := x.m.settle(0, modelBytes)
	rest = slices.DeleteFunc(rest, func(r *modelRegion) bool { return r.users > 0 })
	checkRest(t, rest, x.c.Purge())
}

// visit makes a peer begin or end an access to a region.
func (x *machine) visit(t *rapid.T) {
	if len(x.m.regions) == 0 {
		t.Skip("nothing is registered")
	}
	i := rapid.IntRange(0, len(x.m.regions)-1).Draw(t, "region")
	x.m.regions[i].visited = !x.m.regions[i].visited
	x.dev.open[i].visited = x.m.regions[i].visited
}

// check compares the registrations, and checks invariants of the cache.
func (x *machine) check(t *rapid.T) {
	require.Equal(t, len(x.m.regions), len(x.dev.open), list(x.memory, x.dev.open))
	for i, r := range x.m.regions {
		require.Equal(t, span{uintptr(r.off), uintptr(r.off + r.n)}, x.relative(x.dev.open[i].span))
	}
	for _, u := range x.uses {
		require.False(t, u.e.Mem.over, "deregistered while in use")
		require.True(t, u.e.Mem.span.covers(u.e.span))
	}
	require.LessOrEqual(t, x.c.idle.bytes, x.c.maxSize)
	require.LessOrEqual(t, x.c.idle.count, x.c.maxRegions)
	require.Equal(t, x.m.idleBytes(), x.c.idle.bytes)
	require.Len(t, x.m.idle(), x.c.idle.count)
}

// relative returns s relative to the beginning of the memory.
func (x *machine) relative(s span) span {
	base := spanOf(x.memory).start
	return span{s.start - base, s.end - base}
}

// end closes the cache, with entries in use and visited.
func (x *machine) end(t *rapid.T) {
	checkRest(t, x.m.invalidate(0, modelBytes), x.c.Close())
	for len(x.uses) > 0 {
		x.put(t)
	}
	for _, r := range x.dev.open {
		r.visited = false
	}
	require.NoError(t, x.c.Close())
	require.Empty(t, x.dev.open)
	require.Empty(t, x.c.leaving)
}

// TestCache_IsItsModel: random histories leave the registrations of the model.
func TestCache_IsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"":           x.check,
			"get":        x.get,
			"put":        x.put,
			"invalidate": x.invalidate,
			"purge":      x.purge,
			"visit":      x.visit,
		})
		x.end(t)
	})
}
