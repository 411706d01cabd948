package sp

import "math"

// Constants of the gas, with the names of the specification (RNR-94-007, section 3.2).
const (
	k1 = 1.4 // ratio of specific heats
	k2 = 0.4 // k1 - 1
	k3 = 0.1
	k4 = 1.0
	k5 = 1.4

	viscosity  = k3 * k4
	conduction = k1 * k5 // of energy, in units of the viscosity
)

// dissipation is the factor of the fourth differences that make the scheme stable: a quarter of the
// largest of diffusion.
const dissipation = 0.25

// diffusion contains the factors of the second differences of all components, by axis.
var diffusion = [axes]float64{0.75, 0.75, 1.0}

// flow contains the factors of the differences along an axis of a grid.
type flow struct {
	convect float64 // of a central difference: 1/2h
	diffuse float64 // of the second differences of all components

	shear    float64 // of the second differences of velocities
	stretch  float64 // in addition, of that of the velocity along the axis
	kinetic  float64 // of the kinetic energy, in the equation of energy
	normal   float64 // of the square of the velocity along the axis
	internal float64 // of the energy of a unit of mass
}

// newFlow returns flow along axis d on a grid of n points in the unit interval.
func newFlow(d, n int) flow {
	inverse := float64(n - 1) // of the distance of two points
	second := inverse * inverse
	v := viscosity * second
	return flow{
		convect:  inverse / 2,
		diffuse:  diffusion[d] * second,
		shear:    v,
		stretch:  v / 3,
		kinetic:  v * (1 - conduction),
		normal:   v / 6,
		internal: v * conduction,
	}
}

// state contains values derived from the unknowns of a point.
type state struct {
	inverse  float64       // of density
	velocity [axes]float64 // momentum over density
	energy   float64       // kinetic energy of a unit of volume
	specific float64       // kinetic energy of a unit of mass
	sound    float64       // its speed
}

// set computes s from the unknowns.
func (s *state) set(u *vector) {
	r := 1 / u[0]
	x, y, z := u[1]*r, u[2]*r, u[3]*r
	s.inverse = r
	s.velocity = [axes]float64{x, y, z}
	s.specific = (x*x + y*y + z*z) / 2
	s.energy = s.specific * u[0]
	s.sound = math.Sqrt(k1 * k2 * r * (u[4] - s.energy))
}
