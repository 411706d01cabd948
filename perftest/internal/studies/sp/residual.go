package sp

// residual computes the right-hand side of a step of length dt.
func (c *cell) residual(dt float64) {
	c.differences()
	c.eachRow(func(at, n int) {
		f := c.force[at : at+n]
		r := c.change[at:][:len(f)]
		for i := range f {
			x, y := &r[i], &f[i]
			*x = vector{dt * (x[0] + y[0]), dt * (x[1] + y[1]), dt * (x[2] + y[2]), dt * (x[3] + y[3]), dt * (x[4] + y[4])}
		}
	})
}

// eachRow calls f for each row of points in x that are not on the grid's boundary.
func (c *cell) eachRow(f func(at, n int)) {
	for z := c.from[axisZ]; z < c.to[axisZ]; z++ {
		for y := c.from[axisY]; y < c.to[axisY]; y++ {
			f(c.index(c.from[axisX], y, z), c.to[axisX]-c.from[axisX])
		}
	}
}

// differences computes the changes by convection, diffusion and dissipation, at all points that are not on the grid's
// boundary.
func (c *cell) differences() {
	for z := c.from[axisZ]; z < c.to[axisZ]; z++ {
		for y := c.from[axisY]; y < c.to[axisY]; y++ {
			at, n := c.index(c.from[axisX], y, z), c.to[axisX]-c.from[axisX]
			clear(c.change[at : at+n])
			for _, r := range c.split {
				c.along(axisX, c.index(r.from, y, z), r.to-r.from, r.w)
			}
			c.along(axisY, at, n, c.weights[axisY][y])
			c.along(axisZ, at, n, c.weights[axisZ][z])
		}
	}
}

// along adds the differences along axis d of n points in a row, with weights w of fourth differences. The compiler
// unrolls no loops; this unrolled code takes half the time.
func (c *cell) along(d, at, n int, w weights) {
	f, s := c.flow[d], c.stride[d]
	w = f.linear(w)
	w0, w2, w4 := w[0], w[2], w[4]
	r := c.change[at : at+n]
	u0, u1, u2 := c.u[at-2*s:][:len(r)], c.u[at-s:][:len(r)], c.u[at:][:len(r)]
	u3, u4 := c.u[at+s:][:len(r)], c.u[at+2*s:][:len(r)]
	s1, s2, s3 := c.state[at-s:][:len(r)], c.state[at:][:len(r)], c.state[at+s:][:len(r)]
	for i := range r {
		x, sb, sh, sa := &r[i], &s1[i], &s2[i], &s3[i]
		vb, vh, va := sb.velocity[d], sh.velocity[d], sa.velocity[d]
		w1, w3 := w[1]+f.convect*vb, w[3]-f.convect*va // quantities carried with the velocity, for all components

		p0, p1, p2, p3, p4 := &u0[i], &u1[i], &u2[i], &u3[i], &u4[i]
		x[0] += w0*p0[0] + w1*p1[0] + w2*p2[0] + w3*p3[0] + w4*p4[0]
		x[1] += w0*p0[1] + w1*p1[1] + w2*p2[1] + w3*p3[1] + w4*p4[1]
		x[2] += w0*p0[2] + w1*p1[2] + w2*p2[2] + w3*p3[2] + w4*p4[2]
		x[3] += w0*p0[3] + w1*p1[3] + w2*p2[3] + w3*p3[3] + w4*p4[3]
		x[4] += w0*p0[4] + w1*p1[4] + w2*p2[4] + w3*p3[4] + w4*p4[4]

		x[1] += f.shear * curve(sb.velocity[axisX], sh.velocity[axisX], sa.velocity[axisX])
		x[2] += f.shear * curve(sb.velocity[axisY], sh.velocity[axisY], sa.velocity[axisY])
		x[3] += f.shear * curve(sb.velocity[axisZ], sh.velocity[axisZ], sa.velocity[axisZ])
		pb, pa := k2*(p1[4]-sb.energy), k2*(p3[4]-sa.energy) // pressure
		x[1+d] += f.stretch*curve(vb, vh, va) - f.convect*(pa-pb)
		x[4] += f.kinetic*curve(sb.specific, sh.specific, sa.specific) + f.normal*curve(vb*vb, vh*vh, va*va) +
			f.internal*curve(p1[4]*sb.inverse, p2[4]*sh.inverse, p3[4]*sa.inverse) - f.convect*(pa*va-pb*vb)
	}
}

// linear returns the weights of diffusion and dissipation together, with weights w of fourth differences.
func (f *flow) linear(w weights) weights {
	w = w.scaled(-dissipation)
	w[1] += f.diffuse
	w[2] -= 2 * f.diffuse
	w[3] += f.diffuse
	return w
}

// curve returns the second difference of three values.
func curve(below, here, above float64) float64 { return below - 2*here + above }
