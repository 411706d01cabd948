package su3

import (
	"fmt"
	"math"
	"math/cmplx"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/perftest/internal/studies/kernel/kerneltest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func small() Config {
	return Config{Size: [dims]int{4, 4, 2, 6}, Mass: 0.5, Target: 1e-10, Roughness: 0.7, Seed: 7}
}

func alone(t *testing.T, cfg Config) *solver {
	t.Helper()
	s, err := newSolver(cfg, kernel.Alone(t.Context()))
	require.NoError(t, err)
	return s
}

// TestRandomLink: links are in SU(3): u u† = 1 and the determinant is 1.
func TestRandomLink(t *testing.T) {
	for site := range 20 {
		u := randomLink(1, 1, site, site%dims)
		for i := range colors {
			for j := range colors {
				var v complex128
				for k := range colors {
					v += u[i][k] * conj(u[j][k])
				}
				want := complex128(0)
				if i == j {
					want = 1
				}
				assert.Less(t, cmplx.Abs(v-want), 1e-14)
			}
		}
		det := u[0][0]*(u[1][1]*u[2][2]-u[1][2]*u[2][1]) - u[0][1]*(u[1][0]*u[2][2]-u[1][2]*u[2][0]) + u[0][2]*(u[1][0]*u[2][1]-u[1][1]*u[2][0])
		assert.Less(t, cmplx.Abs(det-1), 1e-14)
	}
}

// TestMultiply_PlaneWaves: without fields plane waves are eigenvectors, with the eigenvalue m² + Σ sin² p.
func TestMultiply_PlaneWaves(t *testing.T) {
	cfg := small()
	cfg.Roughness = 0
	s := alone(t, cfg)
	l := s.lattice
	for _, mode := range [][dims]int{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 1, 2}, {3, 2, 1, 5}} {
		want := cfg.Mass * cfg.Mass
		for d := range dims {
			p := 2 * math.Pi * float64(mode[d]) / float64(cfg.Size[d])
			want += math.Sin(p) * math.Sin(p)
		}
		for i := range s.p {
			x := l.place(i)
			phase := 0.0
			for d := range dims {
				phase += 2 * math.Pi * float64(mode[d]*x[d]) / float64(cfg.Size[d])
			}
			for k := range colors {
				s.p[i][k] = cmplx.Exp(complex(0, phase)) * complex(float64(k+1), 0)
			}
		}
		require.NoError(t, s.multiply(s.q, s.p))
		for i := range s.q {
			for k := range colors {
				require.Less(t, cmplx.Abs(s.q[i][k]-complex(want, 0)*s.p[i][k]), 1e-13, "%v", mode)
			}
		}
	}
}

// TestApply_IsAntiHermitian: <a, D b> = -<D a, b>, with fields.
func TestApply_IsAntiHermitian(t *testing.T) {
	s := alone(t, small())
	a, b := s.p, s.b
	for i := range a {
		for k := range colors {
			a[i][k] = random(99, i, k)
		}
	}
	da, db := make([]vector, len(a)), make([]vector, len(a))
	require.NoError(t, s.lattice.apply(da, a))
	require.NoError(t, s.lattice.apply(db, b))
	var left, right complex128
	for i := range a {
		for k := range colors {
			left += conj(a[i][k]) * db[i][k]
			right += conj(da[i][k]) * b[i][k]
		}
	}
	assert.Greater(t, cmplx.Abs(left), 1e-3)
	assert.Less(t, cmplx.Abs(left+right), 1e-12*float64(len(a)))
}

// TestSolver: a solution has the requested residual, and the next equation has another right-hand side.
func TestSolver(t *testing.T) {
	s := alone(t, small())
	for s.norm > s.limit {
		require.NoError(t, s.Step())
		require.Less(t, s.steps, 200)
	}
	res, err := s.Result()
	require.NoError(t, err)
	assert.Less(t, res.Values[0].Number, 1.01*s.cfg.Target, "the residual computed from the solution")
	assert.Greater(t, res.Values[1].Number, 1.0)
	before := s.b[0]
	steps := s.steps
	require.NoError(t, s.Step())
	assert.NotEqual(t, before, s.b[0])
	assert.Equal(t, 1, s.solves)
	assert.Equal(t, steps, s.last)
	assert.Equal(t, 1, s.steps)
}

// TestRanks: any number of ranks has exactly the result of one, for all directions in which a lattice may be cut.
func TestRanks(t *testing.T) {
	cfg := small()
	cfg.Target = 0.1
	const steps = 12 // more than a solution needs
	s := alone(t, cfg)
	for range steps {
		require.NoError(t, s.Step())
	}
	want, err := s.Result()
	require.NoError(t, err)
	require.Positive(t, s.solves)
	for _, n := range []int{2, 3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			require.NoError(t, cfg.Check(n))
			assert.Equal(t, want, kerneltest.Run(t, func(c *kernel.Comm) (kernel.Kernel, error) { return New(cfg, c) }, n, steps))
		})
	}
}

func TestConfig_Check(t *testing.T) {
	cfg := small()
	require.NoError(t, cfg.Check(48))
	assert.ErrorIs(t, cfg.Check(5), kernel.ErrStudy)
	for _, change := range []func(*Config){
		func(c *Config) { c.Size[2] = 3 }, func(c *Config) { c.Size[0] = 0 }, func(c *Config) { c.Mass = 0 },
		func(c *Config) { c.Target = leastTarget / 2 }, func(c *Config) { c.Target = 1 }, func(c *Config) { c.Mass = math.NaN() },
	} {
		c := small()
		change(&c)
		assert.ErrorIs(t, c.Check(1), kernel.ErrStudy)
	}
}
