package dgemm

import (
	"encoding/binary"
	"math"
)

// element is a float64 in memory, in the byte order of the machine.
const element = 8

// layout describes the server's memory: matrix after matrix, by rows, so a tile consists of one
// range per row.
type layout struct {
	n    int // rows of a matrix
	rows int // rows of a tile of A and C
	tile int // columns of all tiles, and rows of a tile of B
}

// Matrices in the server's memory.
const (
	matrixA = iota
	matrixB
	matrixC
	matrices
)

func (l layout) matrixLen() int { return l.n * l.n * element }

// rowsOf returns the number of rows of a tile of a matrix, and tileLen its length in bytes.
func (l layout) rowsOf(matrix int) int {
	if matrix == matrixB {
		return l.tile
	}
	return l.rows
}

func (l layout) tileLen(matrix int) int { return l.rowsOf(matrix) * l.rowLen() }
func (l layout) rowLen() int            { return l.tile * element } // of a tile

// across returns the number of tiles in a row of the matrix, and tiles the number of tiles of C.
func (l layout) across() int { return l.n / l.tile }
func (l layout) tiles() int  { return l.n / l.rows * l.across() }

// index returns the offset of an element of a matrix, by row and column.
func (l layout) index(matrix, row, col int) int {
	return matrix*l.matrixLen() + (row*l.n+col)*element
}

func load(b []byte) float64     { return math.Float64frombits(binary.NativeEndian.Uint64(b)) }
func store(b []byte, v float64) { binary.NativeEndian.PutUint64(b, math.Float64bits(v)) }

// value returns the elements of A and B: small integers, so that sums are exact in any order.
func value(matrix, row, col int) float64 {
	return float64((row*7+col*3+matrix*5)%17 - 8)
}

// fill writes A and B.
func (l layout) fill(mem []byte) {
	for _, m := range []int{matrixA, matrixB} {
		for r := range l.n {
			for c := range l.n {
				store(mem[l.index(m, r, c):], value(m, r, c))
			}
		}
	}
}

// product returns an element of A*B, computed serially.
func (l layout) product(row, col int) (sum float64) {
	for k := range l.n {
		sum += value(matrixA, row, k) * value(matrixB, k, col)
	}
	return sum
}

// multiply adds the product of tiles a and b to acc, which contains the elements of a tile of C by
// rows.
func (l layout) multiply(acc []float64, a, b []byte) {
	t := l.tile
	for i := range l.rows {
		for k := range t {
			x := load(a[(i*t+k)*element:])
			for j := range t {
				acc[i*t+j] += x * load(b[(k*t+j)*element:])
			}
		}
	}
}
