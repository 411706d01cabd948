package sp

// Work is a type of computation of a time step.
type Work uint8

// Types of work, with the units of their amounts.
const (
	Derive         Work = iota // velocities, energies, speed of sound; points
	Residual                   // right-hand side; inner points
	Characteristic             // to the eigenvectors in x; inner points
	Assemble                   // rows of a sweep; points on inner lines
	Eliminate                  // forward; points on inner lines
	Substitute                 // backward; points on inner lines
	Rotate                     // to the next eigenvectors; inner points
	Update                     // add the change; inner points
	Pack                       // into a message; values of 8 bytes
	Unpack                     // from a message; values of 8 bytes
	Works                      // number of types
)

var workNames = [Works]string{
	"derive", "residual", "characteristic", "assemble", "eliminate", "substitute", "rotate", "update", "pack", "unpack",
}

// String returns the name.
func (w Work) String() string { return workNames[w] }

// Unit returns the unit of the amount.
func (w Work) Unit() string {
	switch w {
	case Derive:
		return "point"
	case Assemble, Eliminate, Substitute:
		return "point of an inner line"
	case Pack, Unpack:
		return "value"
	}
	return "inner point"
}

// part is the part of a cell that a message contains.
type part uint8

const (
	partUnknowns part = iota // the unknowns of the planes at a side
	partRows                 // rows and right-hand sides of the last planes of a sweep
	partSolution             // solutions of the first planes of a sweep
)

// values is the number of float64 of a point in a message, by part.
var values = [...]int{partUnknowns: components, partRows: 6 + components, partSolution: components}

// task is work on one cell.
type task struct {
	work Work
	cell int
	axis int       // of Assemble, Eliminate, Substitute, Rotate, Pack and Unpack
	side int       // of Pack and Unpack
	part part      // of Pack and Unpack
	buf  []float64 // of Pack and Unpack
}

// amount returns the amount of work of a task, in the unit of its type.
func (t task) amount(b *box) int {
	switch t.work {
	case Derive:
		return b.points()
	case Assemble, Eliminate, Substitute:
		return b.lines(t.axis) * b.size[t.axis]
	case Pack, Unpack:
		return len(t.buf)
	}
	return b.inner()
}

// worker does the work of a rank, or only counts it.
type worker interface {
	do(t task)
}

// field is a worker with all cells of a rank.
type field struct {
	dt    float64
	flow  [axes]flow
	cells []*cell
}

func newField(l *layout, dt float64) *field {
	f := &field{dt: dt}
	for d := range f.flow {
		f.flow[d] = newFlow(d, l.grid)
	}
	for _, b := range l.cells {
		f.cells = append(f.cells, newCell(b, l.grid, &f.flow))
	}
	return f
}

// reset sets the initial values.
func (f *field) reset() {
	for _, c := range f.cells {
		c.fill(initial)
	}
}

// do implements worker.
func (f *field) do(t task) {
	c := f.cells[t.cell]
	switch t.work {
	case Derive:
		c.derive()
	case Residual:
		c.residual(f.dt)
	case Characteristic:
		c.characteristics()
	case Assemble:
		c.assemble(t.axis, f.dt)
	case Eliminate:
		c.eliminate(t.axis, f.dt)
	case Substitute:
		c.substitute(t.axis)
	case Rotate:
		c.rotate(t.axis)
	case Update:
		c.update()
	case Pack:
		c.pack(t)
	case Unpack:
		c.unpack(t)
	}
}
