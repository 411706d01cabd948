package sp

// solution contains the coefficients of the exact solution (RNR-94-007, table 3.1), by component: a
// constant, then for each power from one to four those of x, y and z.
var solution = [components]struct {
	constant float64
	power    [4][axes]float64
}{
	{2, [4][axes]float64{{0, 0, 4}, {5, 3, 0.5}, {0.02, 0.01, 0.03}, {0.5, 0.4, 0.3}}},
	{1, [4][axes]float64{{0, 0, 0}, {1, 2, 3}, {0.01, 0.03, 0.02}, {0.4, 0.3, 0.5}}},
	{2, [4][axes]float64{{2, 0, 0}, {0, 2, 3}, {0.04, 0.03, 0.05}, {0.3, 0.5, 0.4}}},
	{2, [4][axes]float64{{2, 0, 0}, {0, 2, 3}, {0.03, 0.05, 0.04}, {0.2, 0.1, 0.3}}},
	{5, [4][axes]float64{{4, 3, 2}, {0.1, 0.4, 0.3}, {0.05, 0.04, 0.03}, {0.1, 0.3, 0.2}}},
}

// point is a place in the unit cube.
type point [axes]float64

// exact returns the exact solution at p.
func exact(p point) (u vector) {
	for m := range u {
		s := &solution[m]
		u[m] = s.constant
		for d, x := range p {
			u[m] += x * (s.power[0][d] + x*(s.power[1][d]+x*(s.power[2][d]+x*s.power[3][d])))
		}
	}
	return u
}

// initial returns the initial values at p: inside, the transfinite interpolation of the exact
// solution on the six faces; on a face, the exact solution.
func initial(p point) vector {
	for _, x := range p {
		if x == 0 || x == 1 {
			return exact(p)
		}
	}
	x, y, z := between(p, axisX), between(p, axisY), between(p, axisZ)
	var u vector
	for m := range u {
		u[m] = x[m] + y[m] + z[m] - x[m]*y[m] - x[m]*z[m] - y[m]*z[m] + x[m]*y[m]*z[m]
	}
	return u
}

// between interpolates the exact solution on the two faces across axis d.
func between(p point, d int) (u vector) {
	low, high := p, p
	low[d], high[d] = 0, 1
	a, b := exact(low), exact(high)
	for m := range u {
		u[m] = p[d]*b[m] + (1-p[d])*a[m]
	}
	return u
}
