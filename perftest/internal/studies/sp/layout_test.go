package sp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// layouts returns the layouts of all ranks.
func layouts(t *testing.T, grid, ranks int) (all []*layout) {
	t.Helper()
	for i := range ranks {
		l, err := newLayout(grid, ranks, i)
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}

// The cells of all ranks cover the grid, each point once. A rank has one cell in each stage of each sweep, and the
// cells beside its own on one side belong to the same neighbor.
func TestLayout(t *testing.T) {
	const grid = 19
	for q := 1; q <= 8; q++ {
		all := layouts(t, grid, q*q)
		owner := map[[axes]int]int{}
		points, inner := 0, 0
		for _, l := range all {
			for i := range l.cells {
				owner[l.cells[i].at] = l.rank
				points += l.cells[i].points()
				inner += l.cells[i].inner()
			}
			for d := range axes {
				for k := range q {
					assert.Equal(t, k, l.cells[l.stage(d, k)].at[d])
				}
			}
		}
		assert.Equal(t, grid*grid*grid, points)
		assert.Equal(t, (grid-2)*(grid-2)*(grid-2), inner)
		assert.Len(t, owner, q*q*q)
		for _, l := range all {
			for _, b := range l.cells {
				for d := range axes {
					for side, step := range [sides]int{-1, 1} {
						at := b.at
						at[d] += step
						if beside, ok := owner[at]; ok {
							assert.Equal(t, beside, l.neighbor(d, side))
						} else {
							assert.False(t, b.side[d][side])
						}
					}
				}
			}
		}
	}
}
