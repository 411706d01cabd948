package ucpgroup

// Op folds the numbers of one rank into those of others: into[i] becomes into[i] ∘ from[i]. The
// slices are equally long and do not overlap. It must be associative and commutative: which
// ranks are folded first depends on the algorithm. Of floating-point sums the last bits
// therefore depend on the number of ranks and of elements, but not on the run, and Allreduce
// gives every rank the same.
type Op[T Number] func(into, from []T)

// Integer is what bits can be taken of.
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

// Min takes the lesser one; NaN if one is NaN.
func Min[T Number](into, from []T) {
	for i, x := range from {
		into[i] = min(into[i], x)
	}
}

// Max takes the greater one; NaN if one is NaN.
func Max[T Number](into, from []T) {
	for i, x := range from {
		into[i] = max(into[i], x)
	}
}

// And takes the bits that are set in both.
func And[T Integer](into, from []T) {
	for i, x := range from {
		into[i] &= x
	}
}

// Or takes the bits that are set in one of them.
func Or[T Integer](into, from []T) {
	for i, x := range from {
		into[i] |= x
	}
}

// Xor takes the bits that are set in just one of them.
func Xor[T Integer](into, from []T) {
	for i, x := range from {
		into[i] ^= x
	}
}

// fold is op on bytes.
func fold[T Number](op Op[T]) func(into, from []byte) {
	return func(into, from []byte) { op(numbers[T](into), numbers[T](from)) }
}
