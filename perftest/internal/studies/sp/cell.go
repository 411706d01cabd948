package sp

// row is a row of the three systems of a line at a point. Before elimination it contains the elements that depend on
// the position in the plane, see assemble; after elimination, the two elements above the diagonal of each system.
type row [6]float64

// Contents of a row before elimination.
const (
	rowBelow     = iota // the element before the diagonal
	rowDiagonal         // the diagonal
	rowAbove            // the element behind the diagonal
	rowSoundLow         // what the systems with sound subtract from the element before, or add
	rowSoundHigh        // what they add to the element behind, or subtract
)

// cell is a box with its points. All arrays have the same shape: x is innermost, and each plane has a halo on both
// sides. Halos outside of the grid are zero.
type cell struct {
	box
	stride [axes]int // between neighbors along an axis
	origin int       // of the first point of the box

	u      []vector // unknowns
	force  []vector // makes the exact solution a steady state
	change []vector // right-hand side, then the change of the unknowns
	state  []state
	rows   []row // rows of the current sweep

	weights [axes][]weights // of fourth differences, by position in the box
	split   []run           // of x
	flow    *[axes]flow
	grid    int
}

// newCell returns a box of a grid, with its initial values.
func newCell(b box, grid int, f *[axes]flow) *cell {
	c := &cell{box: b, flow: f, grid: grid}
	n := 1
	for d, size := range b.size {
		c.stride[d] = n
		c.origin += halo * n
		n *= size + 2*halo
		for i := range size {
			c.weights[d] = append(c.weights[d], fourth(b.low[d]+i, grid))
		}
	}
	c.split = runs(c.weights[axisX], b.from[axisX], b.to[axisX])
	c.u, c.force, c.change = make([]vector, n), make([]vector, n), make([]vector, n)
	c.state, c.rows = make([]state, n), make([]row, n)
	c.balance()
	c.fill(initial)
	return c
}

// index returns the index of the point at a position of the box. It may be in the halo.
func (c *cell) index(x, y, z int) int {
	return c.origin + x + y*c.stride[axisY] + z*c.stride[axisZ]
}

// place returns the coordinates of a point in the unit cube.
func (c *cell) place(x, y, z int) point {
	end := float64(c.grid - 1)
	return point{float64(c.low[axisX]+x) / end, float64(c.low[axisY]+y) / end, float64(c.low[axisZ]+z) / end}
}

// reach returns the range of positions along axis d, with the halos that are in the grid.
func (c *cell) reach(d, depth int) (from, to int) {
	from, to = 0, c.size[d]
	if c.side[d][low] {
		from -= depth
	}
	if c.side[d][high] {
		to += depth
	}
	return from, to
}

// fill sets the unknowns, with halos.
func (c *cell) fill(f func(point) vector) {
	fromX, toX := c.reach(axisX, halo)
	fromY, toY := c.reach(axisY, halo)
	fromZ, toZ := c.reach(axisZ, halo)
	for z := fromZ; z < toZ; z++ {
		for y := fromY; y < toY; y++ {
			for x := fromX; x < toX; x++ {
				c.u[c.index(x, y, z)] = f(c.place(x, y, z))
			}
		}
	}
}

// balance computes the force: the residual of the exact solution.
func (c *cell) balance() {
	c.fill(exact)
	c.derive()
	c.differences()
	for i := range c.force {
		for m, v := range c.change[i] {
			c.force[i][m] = -v
		}
	}
	clear(c.change)
}

// derive computes the states of all points, and of one plane of each halo.
func (c *cell) derive() {
	fromX, toX := c.reach(axisX, 1)
	fromY, toY := c.reach(axisY, 1)
	fromZ, toZ := c.reach(axisZ, 1)
	for z := fromZ; z < toZ; z++ {
		for y := fromY; y < toY; y++ {
			switch outY, outZ := y < 0 || y >= c.size[axisY], z < 0 || z >= c.size[axisZ]; {
			case outY && outZ: // an edge, which no difference needs
			case outY || outZ:
				c.deriveRow(c.index(0, y, z), c.size[axisX])
			default:
				c.deriveRow(c.index(fromX, y, z), toX-fromX)
			}
		}
	}
}

func (c *cell) deriveRow(at, n int) {
	u := c.u[at : at+n]
	s := c.state[at:][:len(u)]
	for i := range u {
		s[i].set(&u[i])
	}
}
