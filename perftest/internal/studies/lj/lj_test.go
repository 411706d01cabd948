package lj

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/perftest/internal/studies/kernel/kerneltest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func melt(cells ...int) Config {
	return Config{Cells: [axes]int(cells), Density: 0.8442, Temperature: 1.44, Cutoff: 2.5, Skin: 0.3, TimeStep: 0.005, Seed: 3}
}

func alone(t *testing.T, cfg Config) *run {
	t.Helper()
	require.NoError(t, cfg.Check(1))
	r, err := newRun(cfg, kernel.Alone(t.Context()))
	require.NoError(t, err)
	return r
}

func state(t *testing.T, r *run) thermo {
	t.Helper()
	th, err := r.thermo()
	require.NoError(t, err)
	return th
}

// TestThermo_LAMMPS: energy and pressure of the crystal are those of the LAMMPS benchmark in.lj, in step 0 of its
// log files. They are for 32,000 atoms; a smaller crystal has the same energy in each cell, and its
// temperature counts one degree of freedom less per atom that there is.
func TestThermo_LAMMPS(t *testing.T) {
	cfg := melt(4, 5, 4)
	th := state(t, alone(t, cfg))
	n := float64(cfg.Atoms())
	const big = 32_000
	kinetic := 1.5 * 1.44 * ((n-1)/n - (big-1.0)/big)
	assert.InDelta(t, -6.7733681, th.pair, 1e-7)
	assert.InDelta(t, 1.44, th.temperature, 1e-12)
	assert.InDelta(t, -4.6134356+kinetic, th.total, 1e-7)
	assert.InDelta(t, -5.0197073+kinetic*2/3*0.8442, th.pressure, 1e-7)
}

// TestStep_LAMMPS: the melt of the LAMMPS benchmark has temperature 0.757, energy -4.622 and pressure 0.207 in step
// 100. Other initial velocities, and fewer atoms, cause only fluctuations.
func TestStep_LAMMPS(t *testing.T) {
	testenv.SkipShort(t, "computes a hundred steps")
	testenv.SkipRace(t, "has one goroutine")
	r := alone(t, melt(6, 6, 6))
	for range 100 {
		require.NoError(t, r.Step())
	}
	th := state(t, r)
	assert.InDelta(t, 0.7574531, th.temperature, 0.03)
	assert.InDelta(t, -4.6223613, th.total, 0.01)
	assert.InDelta(t, 0.20726105, th.pressure, 0.3)
	assert.Positive(t, r.rebuilds)
}

// TestForces: the forces are equal to those of a direct computation over all pairs, and their sum is exactly 0.
func TestForces(t *testing.T) {
	r := alone(t, melt(4, 4, 4))
	for range 20 {
		require.NoError(t, r.Step())
	}
	var sum [axes]int64
	for i := range r.atoms {
		var want [axes]float64
		for j := range r.atoms {
			if i == j {
				continue
			}
			var d [axes]float64
			square := 0.0
			for k := range axes {
				x := (float64(r.atoms[i].at[k]) - float64(r.atoms[j].at[k])) / (1 << 64)
				d[k] = (x - math.Round(x)) * r.box.length[k]
				square += d[k] * d[k]
			}
			if distance := math.Sqrt(square); distance < r.cfg.Cutoff {
				for k := range axes {
					want[k] += (48*math.Pow(distance, -13) - 24*math.Pow(distance, -7)) * d[k] / distance
				}
			}
		}
		for k := range axes {
			assert.InDelta(t, want[k], float64(r.forces[i][k])*forceUnit, 1e-7*(1+math.Abs(want[k])))
			sum[k] += r.forces[i][k]
		}
	}
	assert.Zero(t, sum)
}

// TestStep_Reverses: with reversed velocities the atoms return to their initial positions, except for rounding.
func TestStep_Reverses(t *testing.T) {
	r := alone(t, melt(4, 4, 4))
	begin := map[uint64]position{}
	for _, a := range r.atoms {
		begin[a.id] = a.at
	}
	const steps = 20
	for range steps {
		require.NoError(t, r.Step())
	}
	moved := 0.0
	for i := range r.atoms {
		from := begin[r.atoms[i].id]
		_, square := r.box.between(&from, &r.atoms[i].at)
		moved = max(moved, square)
		for k := range axes {
			r.atoms[i].velocity[k] *= -1
		}
	}
	assert.Greater(t, moved, 0.01)
	for range steps {
		require.NoError(t, r.Step())
	}
	for i := range r.atoms {
		from := begin[r.atoms[i].id]
		_, square := r.box.between(&from, &r.atoms[i].at)
		require.Less(t, square, 1e-18)
	}
}

// TestRanks: any number of ranks has exactly the result of one: with one, two and more domains along an edge, and at a
// temperature at which atoms migrate.
func TestRanks(t *testing.T) {
	cfg := melt(4, 4, 7)
	cfg.Temperature = 6
	const steps = 20
	r := alone(t, cfg)
	for range steps {
		require.NoError(t, r.Step())
	}
	want, err := r.Result()
	require.NoError(t, err)
	require.Greater(t, r.rebuilds, 1)
	for _, n := range []int{2, 3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			require.NoError(t, cfg.Check(n))
			assert.Equal(t, want, kerneltest.Run(t, func(c *kernel.Comm) (kernel.Kernel, error) { return New(cfg, c) }, n, steps))
		})
	}
}

// TestDomain_OwnsEachPlaceOnce: domains have no gaps, and their first places are those of part.
func TestDomain_OwnsEachPlaceOnce(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 1000} {
		for i := range n {
			low := firstOf(i, n)
			assert.Equal(t, i, part(low, n))
			if i > 0 {
				assert.Equal(t, i-1, part(low-1, n))
			}
		}
	}
}

func TestConfig_Check(t *testing.T) {
	cfg := melt(4, 4, 7)
	assert.ErrorIs(t, cfg.Check(5), kernel.ErrStudy, "domains are too small")
	for _, change := range []func(*Config){
		func(c *Config) { c.Cells[0] = 3 }, func(c *Config) { c.Cells[0] = 0 }, func(c *Config) { c.Density = 0 },
		func(c *Config) { c.Cutoff = math.NaN() }, func(c *Config) { c.Skin = 0 }, func(c *Config) { c.TimeStep = -1 },
		func(c *Config) { c.Temperature = -1 }, func(c *Config) { c.Cells[1] = mostCells + 1 },
		func(c *Config) { c.Cells = [axes]int{1000, 100, 26} },
	} {
		c := melt(4, 4, 7)
		change(&c)
		assert.ErrorIs(t, c.Check(1), kernel.ErrStudy)
	}
}
