package sp

// residual computes the right-hand side of a step of length dt.
func (c *cell) residual(dt float64) {
	c.differences()
	c.eachRow(func(at, n int) {
		f := c.force[at : at+n]
		r := c.change[at:][:len(f)]
		for i := range f {
			for m := range components {
				r[i][m] = dt * (r[i][m] + f[i][m])
			}
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

// differences computes what convection, diffusion and dissipation change, at all points that are
// not on the grid's boundary.
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

// along adds the differences along axis d of n points in a row.
func (c *cell) along(d, at, n int, w weights) {
	f, s := &c.flow[d], c.stride[d]
	w = w.scaled(dissipation)
	r := c.change[at : at+n]
	u0, u1, u2 := c.u[at-2*s:][:len(r)], c.u[at-s:][:len(r)], c.u[at:][:len(r)]
	u3, u4 := c.u[at+s:][:len(r)], c.u[at+2*s:][:len(r)]
	s1, s2, s3 := c.state[at-s:][:len(r)], c.state[at:][:len(r)], c.state[at+s:][:len(r)]
	for i := range r {
		f.euler(&r[i], &u1[i], &u3[i], &s1[i], &s3[i], d)
		f.viscous(&r[i], &s1[i], &s2[i], &s3[i], d)
		r[i][4] += f.internal * (u3[i][4]*s3[i].inverse - 2*u2[i][4]*s2[i].inverse + u1[i][4]*s1[i].inverse)
		for m := range components {
			r[i][m] += f.diffuse*(u3[i][m]-2*u2[i][m]+u1[i][m]) -
				(w[0]*u0[i][m] + w[1]*u1[i][m] + w[2]*u2[i][m] + w[3]*u3[i][m] + w[4]*u4[i][m])
		}
	}
}

// euler subtracts the central difference of the convective flux along axis d from r.
func (f *flow) euler(r, below, above *vector, sb, sa *state, d int) {
	vb, va := sb.velocity[d], sa.velocity[d]
	pb, pa := k2*(below[4]-sb.energy), k2*(above[4]-sa.energy)
	r[0] -= f.convect * (above[0]*va - below[0]*vb)
	r[1] -= f.convect * (above[1]*va - below[1]*vb)
	r[2] -= f.convect * (above[2]*va - below[2]*vb)
	r[3] -= f.convect * (above[3]*va - below[3]*vb)
	r[1+d] -= f.convect * (pa - pb)
	r[4] -= f.convect * ((above[4]+pa)*va - (below[4]+pb)*vb)
}

// viscous adds the second differences of velocities and kinetic energy along axis d to r.
func (f *flow) viscous(r *vector, sb, s, sa *state, d int) {
	r[1] += f.shear * (sa.velocity[axisX] - 2*s.velocity[axisX] + sb.velocity[axisX])
	r[2] += f.shear * (sa.velocity[axisY] - 2*s.velocity[axisY] + sb.velocity[axisY])
	r[3] += f.shear * (sa.velocity[axisZ] - 2*s.velocity[axisZ] + sb.velocity[axisZ])
	vb, v, va := sb.velocity[d], s.velocity[d], sa.velocity[d]
	r[1+d] += (f.stretch - f.shear) * (va - 2*v + vb)
	r[4] += f.kinetic*(sa.specific-2*s.specific+sb.specific) + f.normal*(va*va-2*v*v+vb*vb)
}
