package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

func testArena(t require.TestingT, pages int) (*arena, func()) {
	seg, err := memfd.Create("gucx-test", pages*pageLen, memfd.PeersWrite)
	require.NoError(t, err)
	return newArena(seg.Bytes(), seg.FD()), func() { _ = seg.Close() }
}

func TestArena_ReusedPagesAreZero(t *testing.T) {
	a, done := testArena(t, 4)
	defer done()
	off, err := a.alloc(2 * pageLen)
	require.NoError(t, err)
	for i := range a.slice(off, 2*pageLen) {
		a.mem[off+i] = 0xaa
	}
	require.NoError(t, a.release(off, 2*pageLen))
	again, err := a.alloc(2 * pageLen)
	require.NoError(t, err)
	assert.Equal(t, off, again)
	assert.Equal(t, make([]byte, 2*pageLen), a.slice(again, 2*pageLen))
}

func TestArena_Exhausted(t *testing.T) {
	a, done := testArena(t, 4)
	defer done()
	_, err := a.alloc(4 * pageLen)
	assert.ErrorIs(t, err, ucs.ErrNoMemory, "the control page is not handed out")
	_, err = a.alloc(3 * pageLen)
	assert.NoError(t, err)
	_, err = a.alloc(pageLen)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
}

// No two allocations overlap, and freeing everything leaves one span.
func TestArena_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 64
		a, done := testArena(t, pages)
		defer done()
		owner := make([]int, pages)
		held := map[int]span{}
		for id := 1; id < 40; id++ {
			n := rapid.IntRange(1, 16).Draw(t, "pages")
			if off, err := a.alloc(n * pageLen); err == nil {
				for p := off / pageLen; p < off/pageLen+n; p++ {
					require.Zero(t, owner[p], "page %d handed out twice", p)
					owner[p] = id
				}
				held[id] = span{off, n * pageLen}
			}
			if victim := rapid.IntRange(1, id).Draw(t, "victim"); held[victim].len > 0 {
				s := held[victim]
				delete(held, victim)
				for p := s.off / pageLen; p < (s.off+s.len)/pageLen; p++ {
					owner[p] = 0
				}
				require.NoError(t, a.release(s.off, s.len))
			}
		}
		for _, s := range held {
			require.NoError(t, a.release(s.off, s.len))
		}
		assert.Equal(t, []span{{pageLen, (pages - 1) * pageLen}}, a.free)
	})
}
