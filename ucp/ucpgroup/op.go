package ucpgroup

// Op folds the numbers of one rank into those of others: into[i] becomes into[i] ∘ from[i]. The
// slices have the same length and do not overlap. Op must be associative and commutative: the order
// of ranks depends on the algorithm. So the last bits of floating-point sums
// depend on the number of ranks and of elements, but they are the same in each run, and Allreduce
// has the same result on every rank.
type Op[T Number] func(into, from []T)

// Integer is the constraint of the numbers that have bit operations.
type Integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr
}

// Sum adds.
func Sum[T Number](into, from []T) {
	for i, x := range from {
		into[i] += x
	}
}

// Product multiplies.
func Product[T Number](into, from []T) {
	for i, x := range from {
		into[i] *= x
	}
}

// Min is the smaller one; NaN if one is NaN.
func Min[T Number](into, from []T) {
	for i, x := range from {
		into[i] = min(into[i], x)
	}
}

// Max is the larger one; NaN if one is NaN.
func Max[T Number](into, from []T) {
	for i, x := range from {
		into[i] = max(into[i], x)
	}
}

// And is the bitwise and.
func And[T Integer](into, from []T) {
	for i, x := range from {
		into[i] &= x
	}
}

// Or is the bitwise or.
func Or[T Integer](into, from []T) {
	for i, x := range from {
		into[i] |= x
	}
}

// Xor is the bitwise exclusive or.
func Xor[T Integer](into, from []T) {
	for i, x := range from {
		into[i] ^= x
	}
}

// fold is op on bytes.
func fold[T Number](op Op[T]) func(into, from []byte) {
	return func(into, from []byte) { op(numbers[T](into), numbers[T](from)) }
}
