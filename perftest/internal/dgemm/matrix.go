package dgemm

import (
	"encoding/binary"
	"math"
)

// element is a float64 in memory, in the byte order of the machine.
const element = 8

// layout is where tiles lie in the server's memory: matrix after matrix, tile after
// tile, so that a tile is one piece.
type layout struct {
	n, tile int // rows of a matrix, and of a tile
}

// Matrices in the server's memory.
const (
	matrixA = iota
	matrixB
	matrixC
	matrices
)

func (l layout) tileLen() int   { return l.tile * l.tile * element }
func (l layout) matrixLen() int { return l.n * l.n * element }
func (l layout) perRow() int    { return l.n / l.tile }

// at is the offset of the tile in row i and column j of a matrix.
func (l layout) at(matrix, i, j int) int {
	return matrix*l.matrixLen() + (i*l.perRow()+j)*l.tileLen()
}

// index is the offset of an element of a matrix, by row and column.
func (l layout) index(matrix, row, col int) int {
	t := l.tile
	return l.at(matrix, row/t, col/t) + (row%t*t+col%t)*element
}

func load(b []byte) float64     { return math.Float64frombits(binary.NativeEndian.Uint64(b)) }
func store(b []byte, v float64) { binary.NativeEndian.PutUint64(b, math.Float64bits(v)) }

// value is what A and B have: small whole numbers, so that sums are exact in any order.
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

// product is an element of A*B, computed serially.
func (l layout) product(row, col int) (sum float64) {
	for k := range l.n {
		sum += value(matrixA, row, k) * value(matrixB, k, col)
	}
	return sum
}

// multiply adds the product of tiles a and b to acc, which has the elements of a tile
// by rows.
func multiply(acc []float64, a, b []byte, t int) {
	for i := range t {
		for k := range t {
			x := load(a[(i*t+k)*element:])
			for j := range t {
				acc[i*t+j] += x * load(b[(k*t+j)*element:])
			}
		}
	}
}
