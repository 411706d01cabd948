package sp

import "math"

// norms computes both results over all ranks. It exchanges the faces again.
func (d *driver) norms(f *field) (n Norms, err error) {
	var sum [2 * components]float64
	for _, c := range f.cells {
		c.addError((*vector)(sum[:components]))
	}
	if err := d.residual(); err != nil {
		return n, err
	}
	for _, c := range f.cells {
		c.addResidual((*vector)(sum[components:]))
	}
	if err := d.comm.Sum(sum[:]); err != nil {
		return n, err
	}
	points := math.Pow(float64(d.layout.grid-2), axes)
	for m := range components {
		n.Solution[m] = math.Sqrt(sum[m] / points)
		n.Residual[m] = math.Sqrt(sum[components+m]/points) / f.dt
	}
	return n, nil
}

// addError adds the squares of the difference to the exact solution.
func (c *cell) addError(sum *vector) {
	for z := range c.size[axisZ] {
		for y := range c.size[axisY] {
			for x := range c.size[axisX] {
				want, got := exact(c.place(x, y, z)), &c.u[c.index(x, y, z)]
				for m := range sum {
					sum[m] += (got[m] - want[m]) * (got[m] - want[m])
				}
			}
		}
	}
}

// addResidual adds the squares of the right-hand side.
func (c *cell) addResidual(sum *vector) {
	c.eachRow(func(at, n int) {
		for _, r := range c.change[at : at+n] {
			for m := range sum {
				sum[m] += r[m] * r[m]
			}
		}
	})
}
