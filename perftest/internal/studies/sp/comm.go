package sp

import "errors"

// ErrVerify is the error if a result differs from the published one.
var ErrVerify = errors.New("sp: the result is wrong")

// Comm is what ranks exchange messages with. One goroutine uses it.
//
// Isend and Irecv begin a message and return at once; a buffer is the comm's until WaitAll has
// returned. Messages between two ranks with the same tag keep their order. Tags are not negative and
// below Tags.
type Comm interface {
	Rank() int
	Size() int
	Isend(to, tag int, b []byte) error
	Irecv(from, tag int, b []byte) error
	// WaitAll returns when all started messages are complete.
	WaitAll() error
	// Sum adds v over all ranks, for each element; all get the result.
	Sum(v []float64) error
	// Barrier returns after all ranks have called it.
	Barrier() error
}

// alone is the comm of a single rank.
type alone struct{}

func (alone) Rank() int                    { return 0 }
func (alone) Size() int                    { return 1 }
func (alone) Isend(int, int, []byte) error { return errAlone }
func (alone) Irecv(int, int, []byte) error { return errAlone }
func (alone) WaitAll() error               { return nil }
func (alone) Sum([]float64) error          { return nil }
func (alone) Barrier() error               { return nil }

var errAlone = errors.New("sp: a message of a single rank")
