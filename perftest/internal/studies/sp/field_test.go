package sp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// lone returns the field of a single rank.
func lone(t testing.TB, grid int) *cell {
	t.Helper()
	l, err := newLayout(grid, 1, 0)
	require.NoError(t, err)
	return newField(l, 0.01).cells[0]
}

// The residual of the exact solution is zero.
func TestResidual_Exact(t *testing.T) {
	c := lone(t, 9)
	c.fill(exact)
	c.derive()
	c.residual(1)
	for _, r := range c.change {
		assert.InDeltaSlice(t, make([]float64, components), r[:], 1e-12)
	}
}

// The transformations to the eigenvectors in x, y and z, and back, are inverse.
func TestEigenvectors_RoundTrip(t *testing.T) {
	c := lone(t, 7)
	c.derive()
	rapid.Check(t, func(t *rapid.T) {
		var want vector
		for m := range want {
			want[m] = rapid.Float64Range(-1, 1).Draw(t, "r")
		}
		c.eachRow(func(at, n int) {
			for i := range n {
				c.change[at+i] = want
			}
		})
		c.characteristics()
		for d := range axes {
			c.rotate(d)
		}
		c.eachRow(func(at, n int) {
			for _, got := range c.change[at : at+n] {
				if !assert.InDeltaSlice(t, want[:], got[:], 1e-12) {
					t.FailNow()
				}
			}
		})
	})
}

// The three systems of assemble, multiplied by the solution of a sweep, are the right-hand side.
func TestSweep_Solves(t *testing.T) {
	const dt = 0.01
	for d := range axes {
		c := lone(t, 8)
		c.derive()
		c.residual(dt)
		right := append([]vector(nil), c.change...)
		c.assemble(d, dt)
		rows := append([]row(nil), c.rows...)
		c.eliminate(d, dt)
		c.substitute(d)
		s := c.stride[d]
		c.eachPlane(d, func(p plane, at int) {
			for i := 1; i < c.size[d]-1; i++ {
				w := c.weights[d][i].scaled(dt * dissipation)
				for k := range p.lines {
					j := at + i*p.along + k*p.step
					for m, sound := range [components]float64{3: 1, 4: -1} {
						r := rows[j]
						got := w[0]*c.change[j-2*s][m] + (r[rowBelow]-sound*r[rowSoundLow])*c.change[j-s][m] + r[rowDiagonal]*c.change[j][m] +
							(r[rowAbove]+sound*r[rowSoundHigh])*c.change[j+s][m] + w[4]*c.change[j+2*s][m]
						require.InDelta(t, right[j][m], got, 1e-12)
					}
				}
			}
		})
	}
}

// unpack writes exactly the halo, with the planes at the side that pack has read.
func TestPack_Unpack(t *testing.T) {
	l, err := newLayout(12, 9, 4)
	require.NoError(t, err)
	for p := partUnknowns; p <= partSolution; p++ {
		for d := range axes {
			from, to := newField(l, 1).cells[1], newField(l, 1).cells[1]
			for i := range from.u {
				v := float64(i)
				from.u[i], from.change[i], from.rows[i] = vector{v, 1, 2, 3, v}, vector{v, 4, 5, 6, v}, row{v, 7, 8, 9, 10, v}
			}
			clear(to.u)
			buf := make([]float64, messageLen(&from.box, d, p))
			from.pack(task{Pack, 1, d, high, p, buf})
			to.unpack(task{Unpack, 1, d, low, p, buf})
			shift := from.size[d] * from.stride[d]
			found := 0
			for i := range to.u {
				switch {
				case to.u[i] != vector{}:
					assert.Equal(t, from.u[i+shift], to.u[i])
				case to.change[i] != vector{}:
					assert.Equal(t, from.change[i+shift], to.change[i])
					assert.Equal(t, p == partRows, to.rows[i] == from.rows[i+shift])
				default:
					continue
				}
				found++
			}
			assert.Equal(t, halo*facePoints(&from.box, d, p), found)
		}
	}
}
