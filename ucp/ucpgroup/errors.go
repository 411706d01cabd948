package ucpgroup

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gucx/gucx/ucs"
)

// RankError says that a rank is gone, or that an operation failed there. Its cause is what
// errors.Is finds: ErrPeerClosed if the rank has left in order, ErrConnReset if its process
// ended otherwise, ErrCanceled if it gave up, or what package ucp says of its endpoint.
type RankError struct {
	Rank int // in the world
	Err  error
}

// Error returns the rank and the cause.
func (e *RankError) Error() string { return "rank " + strconv.Itoa(e.Rank) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *RankError) Unwrap() error { return e.Err }

// opErr is an error of an operation.
type opErr struct {
	op  string
	err error
}

func (e *opErr) Error() string { return "ucpgroup: " + e.op + ": " + e.err.Error() }
func (e *opErr) Unwrap() error { return e.err }

// inner is the error as the cause of another one, which names the package.
func (e *opErr) inner() error { return fmt.Errorf("%s: %w", e.op, e.err) }

// opError is an error of an operation, with a cause that may be one of another operation.
func opError(op string, cause error) error {
	if e, ok := cause.(*opErr); ok {
		cause = e.inner()
	}
	return &opErr{op, cause}
}

// invalid is an error of a parameter, with a value that is out of its range.
func invalid(op, what string, value int) error {
	return opError(op, fmt.Errorf("%s %d: %w", what, value, ucs.ErrInvalidParam))
}

// statusToTell is the reason of a failure as it travels to other ranks.
func statusToTell(err error) ucs.Status {
	for _, st := range toldReasons {
		if errors.Is(err, st.Err()) {
			return st
		}
	}
	return ucs.StatusInternal
}

// toldReasons are the reasons that keep their meaning in another process. Of an error that wraps
// several the first one is told.
var toldReasons = [...]ucs.Status{
	ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusCanceled, ucs.StatusTruncated,
	ucs.StatusInvalidParam, ucs.StatusUnreachable, ucs.StatusRemoteAccess, ucs.StatusPeerClosed,
}
