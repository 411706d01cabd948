package sp

// faceOf describes the planes of a cell on a side that a message contains, or the halo behind them.
// With unknowns it contains all points of a plane; in a sweep only those that are not on the grid's
// boundary.
type faceOf struct {
	at             [halo]int // index of the first point of each plane
	inner, outer   int       // points in both directions
	innerS, outerS int       // strides
}

// faceOf returns the face of a task, shifted outwards into the halo by shift planes.
func (c *cell) faceOf(t task, shift int) faceOf {
	e, o := across(t.axis)
	f := faceOf{inner: c.size[e], outer: c.size[o], innerS: c.stride[e], outerS: c.stride[o]}
	at := c.origin
	if t.part != partUnknowns {
		f.inner, f.outer = c.to[e]-c.from[e], c.to[o]-c.from[o]
		at += c.from[e]*f.innerS + c.from[o]*f.outerS
	}
	first := -shift
	if t.side == high {
		first = c.size[t.axis] - halo + shift
	}
	for i := range f.at {
		f.at[i] = at + (first+i)*c.stride[t.axis]
	}
	return f
}

// facePoints returns the number of points of a plane of faceOf.
func facePoints(b *box, d int, p part) int {
	if p == partUnknowns {
		return b.face(d)
	}
	return b.lines(d)
}

// messageLen returns the number of values that pack writes.
func messageLen(b *box, d int, p part) int { return halo * values[p] * facePoints(b, d, p) }

// each calls f for each point of a face, with the offset of its values in a message.
func (f *faceOf) each(values int, do func(point, value int)) {
	v := 0
	for _, at := range f.at {
		for i := range f.outer {
			for j := range f.inner {
				do(at+i*f.outerS+j*f.innerS, v)
				v += values
			}
		}
	}
}

// pack writes the planes on a side of the cell to t.buf, which has messageLen values.
func (c *cell) pack(t task) {
	f := c.faceOf(t, 0)
	switch n := values[t.part]; t.part {
	case partUnknowns:
		f.each(n, func(p, v int) { copy(t.buf[v:], c.u[p][:]) })
	case partSolution:
		f.each(n, func(p, v int) { copy(t.buf[v:], c.change[p][:]) })
	case partRows:
		f.each(n, func(p, v int) {
			copy(t.buf[v:], c.change[p][:])
			copy(t.buf[v+components:], c.rows[p][:])
		})
	}
}

// unpack reads t.buf into the halo on a side of the cell.
func (c *cell) unpack(t task) {
	f := c.faceOf(t, halo)
	switch n := values[t.part]; t.part {
	case partUnknowns:
		f.each(n, func(p, v int) { copy(c.u[p][:], t.buf[v:]) })
	case partSolution:
		f.each(n, func(p, v int) { copy(c.change[p][:], t.buf[v:]) })
	case partRows:
		f.each(n, func(p, v int) {
			copy(c.change[p][:], t.buf[v:])
			copy(c.rows[p][:], t.buf[v+components:])
		})
	}
}
