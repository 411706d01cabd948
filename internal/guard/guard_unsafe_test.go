package guard

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
)

// fakePeer is a visitor of one process.
type fakePeer struct {
	word Word
	pid  int
	gone bool
}

func (p *fakePeer) Present() bool { return !p.gone }
func (p *fakePeer) PID() int      { return p.pid }

// in begins a visit, and returns how the owner sees it.
func (p *fakePeer) in(t *testing.T, region uint64) (v Visit, leave func()) {
	t.Helper()
	idle := p.word.Enter(region, true)
	v, at := Look(p, &p.word)
	require.Equal(t, region, at)
	return v, func() { p.word.Leave(idle) }
}

func newOwner() *Owner { return &Owner{Links: new(sync.Mutex)} }

// TestWord_ShowsRegionAndNumber: with and without a barrier, for every region.
func TestWord_ShowsRegionAndNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Word
		for i := range uint64(5) {
			region := rapid.Uint64Range(1, RegionMask).Draw(t, "region")
			idle := w.Enter(region, rapid.Bool().Draw(t, "fenced"))
			ended, at := w.Visits()
			assert.Equal(t, i, ended)
			assert.Equal(t, region, at)
			w.Leave(idle)
			ended, at = w.Visits()
			assert.Equal(t, i+1, ended)
			assert.Zero(t, at)
		}
	})
}

// TestWord_NumberWrapsAround: the number of a visit never becomes a region.
func TestWord_NumberWrapsAround(t *testing.T) {
	w := Word{v: ^uint64(RegionMask)}
	w.Leave(w.Enter(3, false))
	ended, region := w.Visits()
	assert.Zero(t, ended)
	assert.Zero(t, region)
}

func TestVisit_IsOver(t *testing.T) {
	p := &fakePeer{}
	v, leave := p.in(t, 7)
	assert.False(t, v.Over())
	leave()
	assert.True(t, v.Over())
	again, _ := p.in(t, 7)
	assert.True(t, v.Over(), "another visit to the region")
	assert.NotEqual(t, v, again)
	p.gone = true
	assert.True(t, again.Over())
	_, region := Look(p, &p.word)
	assert.Zero(t, region)
}

// TestOwner_AwaitReportsPeersInside within the limit.
func TestOwner_AwaitReportsPeersInside(t *testing.T) {
	o := newOwner()
	a, b := &fakePeer{pid: 9}, &fakePeer{pid: 4}
	stays, _ := a.in(t, 1)
	goes, leave := b.in(t, 1)
	leave()
	synctest.Test(t, func(t *testing.T) {
		left := o.Await([]Visit{goes, stays}, time.Second)
		require.Equal(t, []Visit{stays}, left)
		var inUse *ucs.InUseError
		require.ErrorAs(t, InUse(left), &inUse)
		assert.Equal(t, []int{9}, inUse.PIDs)
	})
	assert.Empty(t, o.Await(nil, time.Second))
}

func TestPIDs(t *testing.T) {
	var list []Visit
	for _, pid := range []int{3, 1, 3, 0, 2} {
		v, _ := (&fakePeer{pid: pid}).in(t, 1)
		list = append(list, v)
	}
	assert.Equal(t, []int{1, 2, 3}, PIDs(list))
}

// TestOwner_Quarantine: memory is freed when the last visit has ended, and counted until then.
func TestOwner_Quarantine(t *testing.T) {
	o := newOwner()
	freed := map[string]int{}
	free := func(name string) func() { return func() { freed[name]++ } }
	o.Free(nil, 100, free("none inside"))
	assert.Equal(t, map[string]int{"none inside": 1}, freed)
	assert.Zero(t, o.Quarantined.Load())

	a, b := &fakePeer{}, &fakePeer{}
	first, leaveFirst := a.in(t, 1)
	second, leaveSecond := b.in(t, 1)
	o.Free([]Visit{first, second}, 100, free("both"))
	o.Free([]Visit{second}, 10, free("one"))
	leaveFirst()
	o.Reclaim()
	assert.Len(t, freed, 1)
	assert.EqualValues(t, 110, o.QuarantinedBytes.Load())
	assert.Equal(t, []Visit{first, second, second}, o.Inside())
	leaveSecond()
	o.Reclaim()
	o.Reclaim()
	assert.Equal(t, map[string]int{"none inside": 1, "both": 1, "one": 1}, freed)
	assert.Zero(t, o.QuarantinedBytes.Load())
	assert.EqualValues(t, 2, o.Quarantined.Load())
	assert.Empty(t, o.Inside())
}

// TestExtent_MapsNothingElse: whatever the table says, what is mapped lies in the arena, behind what is
// reserved, and an access lies in that.
func TestExtent_MapsNothingElse(t *testing.T) {
	const size, reserved = 4096, 128
	arena := make([]byte, size)
	base := unsafe.Pointer(unsafe.SliceData(arena))
	number := rapid.OneOf(rapid.Uint64Range(0, 2*size), rapid.Uint64(), rapid.Uint64Range(^uint64(2*size), ^uint64(0)))
	rapid.Check(t, func(t *rapid.T) {
		var x Extent
		addr, n := number.Draw(t, "addr"), number.Draw(t, "length")
		x.Set(addr, n, number.Draw(t, "start"))
		at, want := number.Draw(t, "at"), number.Draw(t, "n")
		span := x.Map(base, size, reserved)
		p := span.At(at, want)
		off, inside := x.Find(at, want)
		assert.Equal(t, off <= n && want <= n-off, inside)
		if p == nil {
			return
		}
		assert.True(t, inside)
		from := uint64(uintptr(p) - uintptr(base))
		assert.GreaterOrEqual(t, from, uint64(reserved))
		assert.LessOrEqual(t, from, uint64(size))
		assert.LessOrEqual(t, want, size-from)
	})
}
