package su3

import (
	"math"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
)

const colors = 3

// vector is the quark field at a site.
type vector [colors]complex128

// matrix is a link.
type matrix [colors][colors]complex128

// mul sets out to u v.
func mul(out *vector, u *matrix, v *vector) {
	for i := range out {
		row := &u[i]
		out[i] = row[0]*v[0] + row[1]*v[1] + row[2]*v[2]
	}
}

// mulAdjoint sets out to u† v.
func mulAdjoint(out *vector, u *matrix, v *vector) {
	for i := range out {
		out[i] = conj(u[0][i])*v[0] + conj(u[1][i])*v[1] + conj(u[2][i])*v[2]
	}
}

func conj(z complex128) complex128 { return complex(real(z), -imag(z)) }

// addScaled adds s v, with a real s.
func addScaled(out *vector, s float64, v *vector) {
	for i := range out {
		out[i] += complex(s*real(v[i]), s*imag(v[i]))
	}
}

// dot returns the real part of the product of two vectors.
func dot(a, b *vector) (sum float64) {
	for i := range a {
		sum += real(a[i])*real(b[i]) + imag(a[i])*imag(b[i])
	}
	return sum
}

// random returns a number that depends only on a place and a seed.
func random(seed uint64, place ...int) complex128 {
	h := seed
	for _, p := range place {
		h = kernel.Hash(h, uint64(p))
	}
	return complex(kernel.Uniform(kernel.Hash(h, 0)), kernel.Uniform(kernel.Hash(h, 1)))
}

// randomLink returns an SU(3) matrix: the unit matrix if roughness is 0; the distance from it grows with roughness. Its
// rows are orthonormal, and the last one makes the determinant 1.
func randomLink(seed uint64, roughness float64, site, direction int) (u matrix) {
	for i := range colors - 1 {
		for j := range colors {
			z := random(seed, site, direction, i, j)
			u[i][j] = complex(roughness*real(z), roughness*imag(z))
		}
		u[i][i]++
	}
	normalize(&u[0])
	overlap := complex128(0)
	for j := range colors {
		overlap += conj(u[0][j]) * u[1][j]
	}
	for j := range colors {
		u[1][j] -= overlap * u[0][j]
	}
	normalize(&u[1])
	for j := range colors {
		k, l := (j+1)%colors, (j+2)%colors
		u[2][j] = conj(u[0][k]*u[1][l] - u[0][l]*u[1][k])
	}
	return u
}

func normalize(row *[colors]complex128) {
	norm := 0.0
	for _, z := range row {
		norm += real(z)*real(z) + imag(z)*imag(z)
	}
	s := 1 / math.Sqrt(norm)
	for i, z := range row {
		row[i] = complex(s*real(z), s*imag(z))
	}
}
