package sp

// A sweep along an axis solves three systems with five diagonals on each line, one for the first
// three components, which travel with the velocity, and one for each of the waves of sound. Their
// rows are scaled as they are eliminated, so that a row is x + d*x' + e*x'' = r, with the
// unknowns x' and x'' of the next two points; those of the last two points of a cell are
// all that the next cell needs, and its first two solutions what it gives back. Both lie in the
// halo; halos outside of the grid are zero, which is right for the first row and the last.

// Indexes of the scaled elements of the three systems in a row after elimination.
const (
	entropyD = iota
	entropyE
	fasterD
	fasterE
	slowerD
	slowerE
)

// plane describes the lines of a plane of a cell along an axis.
type plane struct {
	along int // stride on a line
	step  int // stride between lines
	lines int
}

// eachPlane calls f for each plane of lines along axis d with the index of position 0 of its first
// line.
func (c *cell) eachPlane(d int, f func(p plane, at int)) {
	e, o := across(d)
	p := plane{c.stride[d], c.stride[e], c.to[e] - c.from[e]}
	for i := c.from[o]; i < c.to[o]; i++ {
		f(p, c.origin+c.from[e]*c.stride[e]+i*c.stride[o])
	}
}

// assemble computes the rows of all lines along axis d.
func (c *cell) assemble(d int, dt float64) {
	c.eachPlane(d, func(p plane, at int) {
		for i := range c.size[d] {
			if i < c.from[d] || i >= c.to[d] {
				c.identity(p, at+i*p.along)
			} else {
				c.assembleRow(p, at+i*p.along, d, dt, c.weights[d][i])
			}
		}
	})
}

// identity sets the rows of points on the grid's boundary, which do not change.
func (c *cell) identity(p plane, at int) {
	for range p.lines {
		c.rows[at] = row{rowDiagonal: 1}
		at += p.step
	}
}

// assembleRow computes the rows of a point of each line of a plane.
func (c *cell) assembleRow(p plane, at, d int, dt float64, w weights) {
	f := &c.flow[d]
	first, second := dt*f.convect, dt*f.convect*f.convect*4
	w = w.scaled(dt * dissipation)
	for range p.lines {
		below, here, above := &c.state[at-p.along], &c.state[at], &c.state[at+p.along]
		c.rows[at] = row{
			rowBelow:     w[1] - first*below.velocity[d] - second*below.spread(d),
			rowDiagonal:  w[2] + 1 + 2*second*here.spread(d),
			rowAbove:     w[3] + first*above.velocity[d] - second*above.spread(d),
			rowSoundLow:  first * below.sound,
			rowSoundHigh: first * above.sound,
		}
		at += p.step
	}
}

// spread returns the factor of second differences in the implicit part: the largest of those of the
// five equations, which is that of energy, because conduction is more than 4/3.
func (s *state) spread(d int) float64 {
	return diffusion[d] + conduction*viscosity*s.inverse
}

// eliminate solves the lines along axis d up to the last point of the cell.
func (c *cell) eliminate(d int, dt float64) {
	c.eachPlane(d, func(p plane, at int) {
		for i := range c.size[d] {
			w := c.weights[d][i].scaled(dt * dissipation)
			c.eliminateRow(p, at+i*p.along, w[0], w[4])
		}
	})
}

// eliminateRow eliminates a row of each line of a plane; a and e are its outer elements.
func (c *cell) eliminateRow(p plane, at int, a, e float64) {
	for range p.lines {
		r, r1, r2 := &c.rows[at], &c.rows[at-p.along], &c.rows[at-2*p.along]
		x, x1, x2 := &c.change[at], &c.change[at-p.along], &c.change[at-2*p.along]
		below, diagonal, above, soundLow, soundHigh := r[rowBelow], r[rowDiagonal], r[rowAbove], r[rowSoundLow], r[rowSoundHigh]

		b := below - a*r2[entropyD]
		scale := 1 / (diagonal - a*r2[entropyE] - b*r1[entropyD])
		r[entropyD], r[entropyE] = (above-b*r1[entropyE])*scale, e*scale
		x[0] = (x[0] - a*x2[0] - b*x1[0]) * scale
		x[1] = (x[1] - a*x2[1] - b*x1[1]) * scale
		x[2] = (x[2] - a*x2[2] - b*x1[2]) * scale

		b = below - soundLow - a*r2[fasterD]
		scale = 1 / (diagonal - a*r2[fasterE] - b*r1[fasterD])
		r[fasterD], r[fasterE] = (above+soundHigh-b*r1[fasterE])*scale, e*scale
		x[3] = (x[3] - a*x2[3] - b*x1[3]) * scale

		b = below + soundLow - a*r2[slowerD]
		scale = 1 / (diagonal - a*r2[slowerE] - b*r1[slowerD])
		r[slowerD], r[slowerE] = (above-soundHigh-b*r1[slowerE])*scale, e*scale
		x[4] = (x[4] - a*x2[4] - b*x1[4]) * scale
		at += p.step
	}
}

// substitute solves the lines along axis d from the last point of the cell to the first.
func (c *cell) substitute(d int) {
	c.eachPlane(d, func(p plane, at int) {
		for i := c.size[d] - 1; i >= 0; i-- {
			c.substituteRow(p, at+i*p.along)
		}
	})
}

// substituteRow solves a point of each line of a plane.
func (c *cell) substituteRow(p plane, at int) {
	for range p.lines {
		r, x := &c.rows[at], &c.change[at]
		x1, x2 := &c.change[at+p.along], &c.change[at+2*p.along]
		x[0] -= r[entropyD]*x1[0] + r[entropyE]*x2[0]
		x[1] -= r[entropyD]*x1[1] + r[entropyE]*x2[1]
		x[2] -= r[entropyD]*x1[2] + r[entropyE]*x2[2]
		x[3] -= r[fasterD]*x1[3] + r[fasterE]*x2[3]
		x[4] -= r[slowerD]*x1[4] + r[slowerE]*x2[4]
		at += p.step
	}
}

// update adds the change to the unknowns.
func (c *cell) update() {
	c.eachRow(func(at, n int) {
		r := c.change[at : at+n]
		u := c.u[at:][:len(r)]
		for i := range r {
			x, y := &u[i], &r[i]
			x[0] += y[0]
			x[1] += y[1]
			x[2] += y[2]
			x[3] += y[3]
			x[4] += y[4]
		}
	})
}
