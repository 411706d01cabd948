package sp

// Tags of messages: the same message has the same tag in each step. A message along an axis
// towards a side has the tag of its kind plus sides*axis plus the side.
const (
	tagUnknowns = 0
	tagSweep    = sides * axes

	// Tags is how many tags messages have.
	Tags = 2 * sides * axes
)

// driver is the time step of a rank: what it computes and what it sends and receives, in which
// order. It is the same for a worker that only counts.
type driver struct {
	layout *layout
	comm   Comm
	work   worker

	faces [axes][sides]struct{ out, in message } // of unknowns; empty if no cell has a neighbor there
	sweep [axes]struct {
		rows, solution struct{ out, in []message } // by cell
	}
}

// message is a buffer of values.
type message struct {
	values []float64
	bytes  []byte // the same memory
}

func newMessage(n int) message {
	v := make([]float64, n)
	return message{v, bytesOf(v)}
}

func newDriver(l *layout, comm Comm, w worker) *driver {
	d := &driver{layout: l, comm: comm, work: w}
	for axis := range axes {
		s := &d.sweep[axis]
		for side := range sides {
			n := 0
			for i := range l.cells {
				if l.cells[i].side[axis][side] {
					n += messageLen(&l.cells[i], axis, partUnknowns)
				}
			}
			d.faces[axis][side].out, d.faces[axis][side].in = newMessage(n), newMessage(n)
		}
		for i := range l.cells {
			b := &l.cells[i]
			rows, solution := messageLen(b, axis, partRows), messageLen(b, axis, partSolution)
			s.rows.out, s.rows.in = append(s.rows.out, newMessage(rows)), append(s.rows.in, newMessage(rows))
			s.solution.out, s.solution.in = append(s.solution.out, newMessage(solution)), append(s.solution.in, newMessage(solution))
		}
	}
	return d
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

// each does work on all cells.
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

// exchange brings the unknowns of neighboring cells into the halos. What goes to a rank is one
// message for all cells.
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

// forward is the elimination along an axis. The rows of a cell are assembled while the message from the
// cell before is under way, and while the own message goes to the cell behind.
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

// backward is the substitution along an axis. The cell that was solved in the stage before is changed
// to the next eigenvectors while messages are under way.
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
