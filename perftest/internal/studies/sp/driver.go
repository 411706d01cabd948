package sp

// Tags of messages. A message has the same tag in each step: the tag of its type, plus sides*axis, plus the side
// towards which it is sent.
const (
	tagUnknowns = 0
	tagSweep    = sides * axes

	// Tags is the number of tags of messages.
	Tags = 2 * sides * axes
)

// driver is the time step of a rank: the order of its computations and messages. It is the same for a worker that only
// counts.
type driver struct {
	layout *layout
	comm   Comm
	work   worker

	faces [axes][sides]struct{ out, in message } // of unknowns; empty if no cell has a neighbor on that side
	sweep [axes]struct{ rows, solution stages }
}

// message is a buffer of values.
type message struct {
	values []float64
	bytes  []byte // the same memory
}

// allocator is a Comm that allocates memory for messages.
type allocator interface {
	// alloc returns n zeroed bytes, aligned for a float64. It is called once.
	alloc(n int) ([]byte, error)
}

// newDriver returns the driver of a rank. Its messages are in memory of comm, if comm is an allocator.
func newDriver(l *layout, comm Comm, w worker) (*driver, error) {
	d := &driver{layout: l, comm: comm, work: w}
	n := 0
	d.eachMessage(func(_ *message, values int) { n += values })
	memory, err := allocate(comm, n)
	if err != nil {
		return nil, err
	}
	d.eachMessage(func(m *message, values int) {
		m.values, m.bytes = memory[:values:values], bytesOf(memory[:values:values])
		memory = memory[values:]
	})
	return d, nil
}

// allocate returns memory for n values.
func allocate(comm Comm, n int) ([]float64, error) {
	a, ok := comm.(allocator)
	if !ok {
		return make([]float64, n), nil
	}
	b, err := a.alloc(n * wordLen)
	return valuesOf(b), err
}

// eachMessage calls f for each message and the number of its values.
func (d *driver) eachMessage(f func(m *message, values int)) {
	for axis := range axes {
		for side := range sides {
			n := 0
			for i := range d.layout.cells {
				if d.layout.cells[i].side[axis][side] {
					n += messageLen(&d.layout.cells[i], axis, partUnknowns)
				}
			}
			f(&d.faces[axis][side].out, n)
			f(&d.faces[axis][side].in, n)
		}
		d.sweep[axis].rows.each(d.layout, axis, partRows, f)
		d.sweep[axis].solution.each(d.layout, axis, partSolution, f)
	}
}

// stages are the messages of a sweep in one direction, by cell.
type stages struct{ out, in []message }

func (s *stages) each(l *layout, axis int, p part, f func(m *message, values int)) {
	if s.out == nil {
		s.out, s.in = make([]message, len(l.cells)), make([]message, len(l.cells))
	}
	for i := range l.cells {
		n := 0
		if l.edge > 1 {
			n = messageLen(&l.cells[i], axis, p)
		}
		f(&s.out[i], n)
		f(&s.in[i], n)
	}
}

// step is a time step.
func (d *driver) step() error {
	if err := d.residual(); err != nil {
		return err
	}
	d.each(Characteristic)
	for axis := range axes {
		if err := d.forward(axis); err != nil {
			return err
		}
		if err := d.backward(axis); err != nil {
			return err
		}
	}
	d.each(Update)
	return nil
}

// each does a type of work on all cells.
func (d *driver) each(w Work) {
	for i := range d.layout.cells {
		d.work.do(task{work: w, cell: i})
	}
}

// residual exchanges the faces of all cells and computes right-hand sides.
func (d *driver) residual() error {
	if d.layout.edge > 1 {
		if err := d.exchange(); err != nil {
			return err
		}
	}
	d.each(Derive)
	d.each(Residual)
	return nil
}

// exchange receives the unknowns of neighboring cells into the halos. There is one message to each rank, for all cells.
func (d *driver) exchange() error {
	for axis := range axes {
		for side := range sides {
			from, in := d.layout.neighbor(axis, side), d.faces[axis][side].in
			if err := d.comm.Irecv(from, tagUnknowns+sides*axis+opposite(side), in.bytes); err != nil {
				return err
			}
		}
	}
	d.copyFaces(Pack)
	for axis := range axes {
		for side := range sides {
			to, out := d.layout.neighbor(axis, side), d.faces[axis][side].out
			if err := d.comm.Isend(to, tagUnknowns+sides*axis+side, out.bytes); err != nil {
				return err
			}
		}
	}
	if err := d.comm.WaitAll(); err != nil {
		return err
	}
	d.copyFaces(Unpack)
	return nil
}

// copyFaces packs or unpacks the messages of exchange.
func (d *driver) copyFaces(w Work) {
	for axis := range axes {
		for side := range sides {
			buf := d.faces[axis][side].out.values
			if w == Unpack {
				buf = d.faces[axis][side].in.values
			}
			for i := range d.layout.cells {
				b := &d.layout.cells[i]
				if !b.side[axis][side] {
					continue
				}
				n := messageLen(b, axis, partUnknowns)
				d.work.do(task{w, i, axis, side, partUnknowns, buf[:n]})
				buf = buf[n:]
			}
		}
	}
}

func opposite(side int) int { return 1 - side }

// forward is the elimination along an axis. The rows of a cell are assembled while the message from the previous cell
// is in flight, and while the own message is sent to the next cell.
func (d *driver) forward(axis int) error {
	for k := range d.layout.edge {
		if err := d.forwardStage(axis, k); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) forwardStage(axis, k int) error {
	i, s := d.layout.stage(axis, k), &d.sweep[axis].rows
	b, tag := &d.layout.cells[i], tagSweep+sides*axis+high
	if b.side[axis][low] {
		if err := d.comm.Irecv(d.layout.neighbor(axis, low), tag, s.in[i].bytes); err != nil {
			return err
		}
	}
	d.work.do(task{work: Assemble, cell: i, axis: axis})
	if b.side[axis][low] {
		if err := d.comm.WaitAll(); err != nil {
			return err
		}
		d.work.do(task{Unpack, i, axis, low, partRows, s.in[i].values})
	}
	d.work.do(task{work: Eliminate, cell: i, axis: axis})
	if !b.side[axis][high] {
		return nil
	}
	d.work.do(task{Pack, i, axis, high, partRows, s.out[i].values})
	return d.comm.Isend(d.layout.neighbor(axis, high), tag, s.out[i].bytes)
}

// backward is the substitution along an axis. While messages are in flight, the cell that was solved in the previous
// stage is transformed to the next eigenvectors.
func (d *driver) backward(axis int) error {
	for k := d.layout.edge - 1; k >= 0; k-- {
		if err := d.backwardStage(axis, k); err != nil {
			return err
		}
	}
	d.work.do(task{work: Rotate, cell: d.layout.stage(axis, 0), axis: axis})
	return nil
}

func (d *driver) backwardStage(axis, k int) error {
	i, s := d.layout.stage(axis, k), &d.sweep[axis].solution
	b, tag := &d.layout.cells[i], tagSweep+sides*axis+low
	if b.side[axis][high] {
		if err := d.comm.Irecv(d.layout.neighbor(axis, high), tag, s.in[i].bytes); err != nil {
			return err
		}
		d.work.do(task{work: Rotate, cell: d.layout.stage(axis, k+1), axis: axis})
		if err := d.comm.WaitAll(); err != nil {
			return err
		}
		d.work.do(task{Unpack, i, axis, high, partSolution, s.in[i].values})
	}
	d.work.do(task{work: Substitute, cell: i, axis: axis})
	if !b.side[axis][low] {
		return nil
	}
	d.work.do(task{Pack, i, axis, low, partSolution, s.out[i].values})
	return d.comm.Isend(d.layout.neighbor(axis, low), tag, s.out[i].bytes)
}
