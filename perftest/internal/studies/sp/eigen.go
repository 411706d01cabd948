package sp

import "math"

// The implicit part of a step is diagonal in the eigenvectors of the flux along an axis (Pulliam
// and Chaussee 1981; RNR-94-007, section 3.3.3). The functions below transform the unknowns to the
// eigenvectors in x, these to those in y, then z, and back to the unknowns.

// root2 is one over the square root of two.
const root2 = 1 / math.Sqrt2

// characteristics transforms the right-hand side of all inner points to the eigenvectors in x.
func (c *cell) characteristics() {
	c.eachRow(func(at, n int) {
		r := c.change[at : at+n]
		s, u := c.state[at:][:len(r)], c.u[at:][:len(r)]
		for i := range r {
			s[i].characteristics(&r[i], u[i][0])
		}
	})
}

// characteristics transforms r to the eigenvectors in x.
func (s *state) characteristics(r *vector, density float64) {
	x, y, z := s.velocity[axisX], s.velocity[axisY], s.velocity[axisZ]
	pressure := k2 * (s.specific*r[0] - x*r[1] - y*r[2] - z*r[3] + r[4])
	entropy := pressure / (s.sound * s.sound)
	stream := root2 * s.inverse * (x*r[0] - r[1])
	sound := root2 * s.inverse * s.sound * entropy
	*r = vector{
		r[0] - entropy,
		-s.inverse * (z*r[0] - r[3]),
		s.inverse * (y*r[0] - r[2]),
		sound - stream,
		sound + stream,
	}
}

// rotate transforms all inner points from the eigenvectors along axis d to those along the next
// axis; from those in z, to the unknowns.
func (c *cell) rotate(d int) {
	switch d {
	case axisX:
		c.eachRow(func(at, n int) { turnY(c.change[at : at+n]) })
	case axisY:
		c.eachRow(func(at, n int) { turnZ(c.change[at : at+n]) })
	default:
		c.eachRow(func(at, n int) {
			r := c.change[at : at+n]
			s, u := c.state[at:][:len(r)], c.u[at:][:len(r)]
			for i := range r {
				s[i].unknowns(&r[i], u[i][0])
			}
		})
	}
}

// turnY transforms r from the eigenvectors in x to those in y.
func turnY(list []vector) {
	for i := range list {
		r := &list[i]
		a, b := root2*r[2], (r[3]+r[4])/2
		*r = vector{-r[1], r[0], root2 * (r[3] - r[4]), b - a, b + a}
	}
}

// turnZ transforms r from the eigenvectors in y to those in z.
func turnZ(list []vector) {
	for i := range list {
		r := &list[i]
		a, b := root2*r[0], (r[3]+r[4])/2
		*r = vector{root2 * (r[3] - r[4]), -r[2], r[1], b - a, b + a}
	}
}

// unknowns transforms r from the eigenvectors in z to the unknowns.
func (s *state) unknowns(r *vector, density float64) {
	x, y, z := s.velocity[axisX], s.velocity[axisY], s.velocity[axisZ]
	sum := root2 * density / s.sound * (r[3] + r[4])
	mass := r[2] + sum
	up := root2 * density * (r[3] - r[4])
	*r = vector{
		mass,
		x*mass - density*r[1],
		y*mass + density*r[0],
		z*mass + up,
		s.specific*mass + density*(y*r[0]-x*r[1]) + s.sound*s.sound*sum/k2 + z*up,
	}
}
