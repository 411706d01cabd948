package su3

import (
	"errors"
	"fmt"
	"math"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
)

// Config is a problem.
type Config struct {
	Size      [dims]int // sites in x, y, z and t
	Mass      float64   // of the quark
	Target    float64   // residual relative to the right side at which a solution is accepted
	Roughness float64   // of the links; 0 has unit matrices
	Seed      uint64
}

// Check returns an error if the problem is invalid for a number of ranks.
func (c *Config) Check(ranks int) error {
	for _, n := range c.Size {
		if n < 2 || n%2 != 0 {
			return fmt.Errorf("%w: a lattice of %v sites: want even numbers", kernel.ErrStudy, c.Size)
		}
	}
	switch {
	case !(c.Mass > 0):
		return fmt.Errorf("%w: mass %v: want more than 0", kernel.ErrStudy, c.Mass)
	case !(c.Target >= leastTarget && c.Target < 1):
		return fmt.Errorf("%w: residual %v: want %v or more, and less than 1", kernel.ErrStudy, c.Target, leastTarget)
	}
	_, err := Parts(c.Size, ranks)
	return err
}

// leastTarget is the smallest residual that 64-bit numbers reach.
const leastTarget = 1e-13

// solver is conjugate gradients.
type solver struct {
	cfg         Config
	lattice     *lattice
	b           []vector
	x, r, p, q  []vector
	half        []vector // D p
	norm, limit float64  // r·r, and the value at which the solution is accepted
	length      float64  // b·b

	solves int // completed solutions
	steps  int // steps of the current one
	last   int // steps of the last completed one
}

// New returns the kernel of a rank.
func New(cfg Config, c *kernel.Comm) (kernel.Kernel, error) { return newSolver(cfg, c) }

func newSolver(cfg Config, c *kernel.Comm) (*solver, error) {
	l, err := newLattice(c, &cfg)
	if err != nil {
		return nil, err
	}
	s := &solver{cfg: cfg, lattice: l}
	for _, v := range []*[]vector{&s.b, &s.x, &s.r, &s.p, &s.q, &s.half} {
		*v = make([]vector, l.sites)
	}
	return s, s.begin()
}

// begin selects the next right side, and 0 as the first solution.
func (s *solver) begin() error {
	for i := range s.b {
		n := s.lattice.number(s.lattice.place(i))
		for k := range colors {
			s.b[i][k] = random(s.cfg.Seed+1, s.solves, n, k)
		}
	}
	clear(s.x)
	copy(s.r, s.b)
	copy(s.p, s.b)
	var err error
	s.norm, err = s.dot(s.b, s.b)
	s.length, s.limit, s.steps = s.norm, s.norm*s.cfg.Target*s.cfg.Target, 0
	return err
}

// dot returns the real part of the product of two fields.
func (s *solver) dot(a, b []vector) (float64, error) {
	var sum kernel.Sum
	for i := range a {
		sum.Add(dot(&a[i], &b[i]))
	}
	err := s.lattice.comm.Sum(&sum)
	return sum.Value(), err
}

// multiply sets out to (m² - D²) in.
func (s *solver) multiply(out, in []vector) error {
	if err := s.lattice.apply(s.half, in); err != nil {
		return err
	}
	if err := s.lattice.apply(out, s.half); err != nil {
		return err
	}
	square := s.cfg.Mass * s.cfg.Mass
	for i := range out {
		for k, z := range out[i] {
			out[i][k] = complex(square*real(in[i][k])-real(z), square*imag(in[i][k])-imag(z))
		}
	}
	return nil
}

var errBreakdown = errors.New("su3: the matrix is not positive")

// Step implements kernel.Kernel.
func (s *solver) Step() error {
	if s.norm <= s.limit {
		s.solves++
		s.last = s.steps
		if err := s.begin(); err != nil {
			return err
		}
	}
	if err := s.multiply(s.q, s.p); err != nil {
		return err
	}
	pq, err := s.dot(s.p, s.q)
	if err != nil {
		return err
	}
	if !(pq > 0) {
		return errBreakdown
	}
	alpha := s.norm / pq
	for i := range s.x {
		addScaled(&s.x[i], alpha, &s.p[i])
		addScaled(&s.r[i], -alpha, &s.q[i])
	}
	next, err := s.dot(s.r, s.r)
	if err != nil {
		return err
	}
	beta := next / s.norm
	for i := range s.p {
		v := s.r[i]
		addScaled(&v, beta, &s.p[i])
		s.p[i] = v
	}
	s.norm = next
	s.steps++
	return nil
}

// Result implements kernel.Kernel. The residual is computed from the solution.
func (s *solver) Result() (res kernel.Result, err error) {
	if err := s.multiply(s.q, s.x); err != nil {
		return res, err
	}
	var residual, norm kernel.Sum
	hash := int64(0)
	for i := range s.x {
		d := s.b[i]
		addScaled(&d, -1, &s.q[i])
		residual.Add(dot(&d, &d))
		norm.Add(dot(&s.x[i], &s.x[i]))
		h := uint64(s.lattice.number(s.lattice.place(i)))
		for _, z := range s.x[i] {
			h = kernel.Hash(h, math.Float64bits(real(z)), math.Float64bits(imag(z)))
		}
		hash += int64(h)
	}
	if err := s.lattice.comm.Sum(&residual, &norm); err != nil {
		return res, err
	}
	state := []int64{hash}
	err = s.lattice.comm.SumInts(state)
	return kernel.Result{State: uint64(state[0]), Values: []kernel.Value{
		{Name: "residual", Title: "residual", Number: math.Sqrt(residual.Value() / s.length)},
		{Name: "norm", Title: "norm of the solution", Number: math.Sqrt(norm.Value())},
		{Name: "solves", Title: "equations solved", Number: float64(s.solves)},
		{Name: "solve_iterations", Title: "iterations of the last one", Number: float64(s.last)},
	}}, err
}
