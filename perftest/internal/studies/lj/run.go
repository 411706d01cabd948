package lj

import (
	"math"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
)

// Fixed-point numbers: forces, energies and virials of pairs are multiples of these. 64 bits are sufficient for the
// energy of mostAtoms atoms, up to 50 for each.
const (
	forceUnit = 1.0 / (1 << 36)
	pairUnit  = 1.0 / (1 << 34)
)

// run is a rank's part.
type run struct {
	cfg       Config
	box       box
	domain    *domain
	neighbors *neighbors

	atoms     []atom
	positions []position // of own atoms, then of those of other ranks
	built     []position // of own atoms at the last rebuild of the lists
	forces    [][axes]int64
	rebuilds  int
	steps     int
	begin     float64 // energy of an atom
}

// New returns the kernel of a rank.
func New(cfg Config, c *kernel.Comm) (kernel.Kernel, error) { return newRun(cfg, c) }

func newRun(cfg Config, c *kernel.Comm) (r *run, err error) {
	r = &run{cfg: cfg, box: newBox(&cfg)}
	if r.domain, err = newDomain(&cfg, &r.box, c); err != nil {
		return nil, err
	}
	r.neighbors = newNeighbors(&cfg, &r.box)
	first, last := r.domain.cells(&cfg)
	r.atoms = crystal(&cfg, r.domain.owns, first, last)
	if err := thermalize(&cfg, c, r.atoms); err != nil {
		return nil, err
	}
	if err := r.rebuild(); err != nil {
		return nil, err
	}
	r.rebuilds = 0
	r.computeForces()
	t, err := r.thermo()
	r.begin = t.total
	return r, err
}

// rebuild migrates atoms and rebuilds the lists.
func (r *run) rebuild() (err error) {
	if r.atoms, err = r.domain.migrate(r.atoms); err != nil {
		return err
	}
	r.positions = r.positions[:0]
	for i := range r.atoms {
		r.positions = append(r.positions, r.atoms[i].at)
	}
	r.built = append(r.built[:0], r.positions...)
	if r.positions, err = r.domain.borders(r.positions); err != nil {
		return err
	}
	r.neighbors.build(r.positions, len(r.atoms))
	r.rebuilds++
	return nil
}

// Step implements kernel.Kernel: a step of velocity Verlet.
func (r *run) Step() error {
	r.pushAtoms()
	for i := range r.atoms {
		a := &r.atoms[i]
		for k := range axes {
			a.at[k] += uint64(int64(math.RoundToEven(r.cfg.TimeStep * a.velocity[k] / r.box.unit[k])))
		}
	}
	far, err := r.movedFar()
	if err != nil {
		return err
	}
	if far {
		err = r.rebuild()
	} else {
		for i := range r.atoms {
			r.positions[i] = r.atoms[i].at
		}
		err = r.domain.forward(r.positions)
	}
	if err != nil {
		return err
	}
	r.computeForces()
	r.pushAtoms()
	r.steps++
	return nil
}

// pushAtoms updates velocities for half of a step.
func (r *run) pushAtoms() {
	half := r.cfg.TimeStep / 2 * forceUnit
	for i := range r.atoms {
		v := &r.atoms[i].velocity
		for k, f := range r.forces[i] {
			v[k] += half * float64(f)
		}
	}
}

// movedFar reports whether an atom of any rank has moved by more than half of the skin: then two atoms that are in no
// list may be within the cutoff.
func (r *run) movedFar() (bool, error) {
	limit := r.cfg.Skin * r.cfg.Skin / 4
	far := []int64{0}
	for i := range r.atoms {
		if _, square := r.box.between(&r.built[i], &r.atoms[i].at); square > limit {
			far[0] = 1
			break
		}
	}
	err := r.domain.comm.SumInts(far)
	return far[0] > 0, err
}

// strength returns the force between two atoms divided by their distance; the argument is the square of the distance.
func strength(square float64) float64 {
	inverse := 1 / square
	sixth := inverse * inverse * inverse
	return 48 * sixth * (sixth - 0.5) * inverse
}

// potential returns the energy of two atoms.
func potential(square float64) float64 {
	sixth := 1 / (square * square * square)
	return 4 * sixth * (sixth - 1)
}

// computeForces computes the forces on the domain's atoms.
func (r *run) computeForces() {
	own := len(r.atoms)
	r.forces = append(r.forces[:0], make([][axes]int64, own)...)
	r.pairs(func(i, j int, d [axes]float64, square float64) {
		f := strength(square)
		for k := range axes {
			push := int64(f * d[k] / forceUnit)
			r.forces[i][k] -= push
			if j < own {
				r.forces[j][k] += push
			}
		}
	})
}

// pairs calls f with each pair within the cutoff that has at least one atom of the domain.
func (r *run) pairs(f func(i, j int, d [axes]float64, square float64)) {
	limit := r.cfg.Cutoff * r.cfg.Cutoff
	for i := range r.atoms {
		list := r.neighbors.list[r.neighbors.first[i]:r.neighbors.first[i+1]]
		for _, j := range list {
			if d, square := r.box.between(&r.positions[i], &r.positions[j]); square < limit {
				f(i, int(j), d, square)
			}
		}
	}
}

// thermo is the thermodynamic state of all atoms.
type thermo struct {
	temperature, pressure float64
	pair, total           float64 // energy per atom
}

// thermo computes the state as LAMMPS does: the potential is cut and not shifted.
func (r *run) thermo() (t thermo, err error) {
	own := len(r.atoms)
	halves := []int64{0, 0} // of energy and virial
	r.pairs(func(_, j int, _ [axes]float64, square float64) {
		share := int64(1)
		if j < own {
			share = 2 // no other rank has this pair
		}
		halves[0] += share * int64(potential(square)/2/pairUnit)
		halves[1] += share * int64(strength(square)*square/2/pairUnit)
	})
	if err := r.domain.comm.SumInts(halves); err != nil {
		return t, err
	}
	if t.temperature, err = temperature(&r.cfg, r.domain.comm, r.atoms); err != nil {
		return t, err
	}
	n := float64(r.cfg.Atoms())
	kinetic := freedom(&r.cfg) * t.temperature
	t.pair = float64(halves[0]) * pairUnit / n
	t.total = t.pair + kinetic/2/n
	t.pressure = (kinetic + float64(halves[1])*pairUnit) / axes / r.box.volume()
	return t, nil
}

// Result implements kernel.Kernel.
func (r *run) Result() (res kernel.Result, err error) {
	t, err := r.thermo()
	if err != nil {
		return res, err
	}
	hash := int64(0)
	for i := range r.atoms {
		a := &r.atoms[i]
		hash += int64(kernel.Hash(a.pack(nil)...))
	}
	state := []int64{hash}
	err = r.domain.comm.SumInts(state)
	return kernel.Result{State: uint64(state[0]), Values: []kernel.Value{
		{Name: "temperature", Title: "temperature", Number: t.temperature},
		{Name: "energy", Title: "energy of an atom", Number: t.total},
		{Name: "energy_change", Title: "its change", Number: t.total - r.begin},
		{Name: "pressure", Title: "pressure", Number: t.pressure},
		{Name: "rebuilds", Title: "lists made anew", Number: float64(r.rebuilds)},
	}}, err
}
