package memfd

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func newTestArena(t testing.TB, pages int) *Arena {
	t.Helper()
	seg, err := Create("arena", pages*os.Getpagesize(), PeersWrite)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, seg.Close()) })
	return NewArena(seg, os.Getpagesize())
}

// TestArena_Model checks against a list of what is out: nothing overlaps, nothing
// is lost, and what comes out is zero.
func TestArena_Model(t *testing.T) {
	const total = 32
	page := os.Getpagesize()
	a := newTestArena(t, total)
	rapid.Check(t, func(t *rapid.T) {
		type piece struct{ off, n int }
		var out []piece
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				a.Free(out[i].off, out[i].n)
				out = append(out[:i], out[i+1:]...)
				continue
			}
			n := rapid.IntRange(1, 6*page).Draw(t, "n")
			off, err := a.Alloc(n, rapid.Bool().Draw(t, "touch"))
			if err != nil {
				require.ErrorIs(t, err, ErrFull)
				continue
			}
			require.Zero(t, off%page)
			require.GreaterOrEqual(t, off, page, "the first page is skipped")
			for _, p := range out {
				require.True(t, off+n <= p.off || p.off+p.n <= off, "[%d,+%d) and [%d,+%d)", off, n, p.off, p.n)
			}
			mem := a.seg.Bytes()[off : off+n]
			require.Equal(t, make([]byte, n), mem)
			mem[0], mem[n-1] = 1, 2
			out = append(out, piece{off, n})
		}
		for _, p := range out {
			a.Free(p.off, p.n)
		}
		require.Equal(t, []span{{page, (total - 1) * page}}, a.free, "all of it in one piece again")
	})
}

func TestArena_Full(t *testing.T) {
	a := newTestArena(t, 4)
	off, err := a.Alloc(3*os.Getpagesize(), true)
	require.NoError(t, err)
	_, err = a.Alloc(1, false)
	assert.ErrorIs(t, err, ErrFull)
	a.Free(off, 3*os.Getpagesize())
	_, err = a.Alloc(1, false)
	assert.NoError(t, err)
}

func TestHugeEnabled(t *testing.T) {
	for modes, want := range map[string]bool{
		"always within_size advise [never] deny force\n": false,
		"always within_size [advise] never deny force\n": true,
		"[always] within_size advise never\n":            true,
		"always never [deny]":                            false,
		"":                                               false,
		"[":                                              false,
		"never":                                          false,
	} {
		assert.Equal(t, want, hugeEnabled(modes), "%q", modes)
	}
}

func TestAdviseHuge_WorksOrReturnsReason(t *testing.T) {
	a := newTestArena(t, 1024)
	if err := a.seg.AdviseHuge(); err != nil {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, shmemHuge)
	}
}
