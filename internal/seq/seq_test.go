package seq

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// serial is what both widths have in common.
type serial[T any] interface {
	~uint16 | ~uint32
	Add(int) T
	Next() T
	Diff(T) int
	Less(T) bool
	LessEq(T) bool
}

// checkLaws holds the arithmetic against integers: numbers are residues, and a
// distance below half the space is an order.
func checkLaws[T serial[T]](t *testing.T, bits int) {
	space, half := 1<<bits, 1<<(bits-1)
	rapid.Check(t, func(t *rapid.T) {
		a := T(rapid.IntRange(0, space-1).Draw(t, "a"))
		n := rapid.IntRange(-half+1, half-1).Draw(t, "n")
		b := a.Add(n)
		if want := T(((int(a)+n)%space + space) % space); b != want {
			t.Fatalf("%d.Add(%d) = %d, want %d", a, n, b, want)
		}
		if b.Diff(a) != n || a.Diff(b) != -n {
			t.Fatalf("distance of %d and %d is %d and %d, want %d", b, a, b.Diff(a), a.Diff(b), n)
		}
		if a.Less(b) != (n > 0) || b.Less(a) != (n < 0) {
			t.Fatalf("order of %d and %d, %d apart", a, b, n)
		}
		if a.LessEq(b) != (n >= 0) || b.LessEq(a) != (n <= 0) {
			t.Fatalf("weak order of %d and %d, %d apart", a, b, n)
		}
		if b.Add(-n) != a {
			t.Fatalf("%d.Add(%d) does not lead back to %d", b, -n, a)
		}
		if a.Next() != a.Add(1) {
			t.Fatalf("%d.Next() = %d", a, a.Next())
		}
	})
}

func TestLaws(t *testing.T) {
	t.Run("U16", func(t *testing.T) { checkLaws[U16](t, 16) })
	t.Run("U32", func(t *testing.T) { checkLaws[U32](t, 32) })
}

// checkHalf holds what the package comment says of numbers half the space apart.
func checkHalf[T serial[T]](t *testing.T, bits int) {
	a, b := T(0), T(0).Add(1<<(bits-1))
	assert.False(t, a.Less(b))
	assert.False(t, b.Less(a))
	assert.Negative(t, a.Diff(b))
	assert.Negative(t, b.Diff(a))
}

func TestHalfTheSpaceApart(t *testing.T) {
	checkHalf[U16](t, 16)
	checkHalf[U32](t, 32)
}

func ExampleU16() {
	psn := U16(0xfffe)
	last := psn.Add(3)
	fmt.Printf("%#x %v %d\n", last, psn.Less(last), last.Diff(psn))
	// Output: 0x1 true 3
}
