package ucpgroup

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gucx/gucx/ucs"
)

// RankError means that a rank is gone, or that an operation failed on the rank. errors.Is matches the cause: ErrPeerClosed if
// the rank has closed its group, ErrConnReset if its process died, ErrCanceled if it has called Abort or abandoned a
// collective operation, or another error of the endpoint to the rank.
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

// inner returns the error without the name of the package, as the cause of an error that has the name.
func (e *opErr) inner() error { return fmt.Errorf("%s: %w", e.op, e.err) }

// opError returns the error of an operation. cause may be the error of another operation.
func opError(op string, cause error) error {
	if e, ok := cause.(*opErr); ok {
		cause = e.inner()
	}
	return &opErr{op, cause}
}

// invalid returns the error of an operation with a parameter that is out of range.
func invalid(op, what string, value int) error {
	return opError(op, fmt.Errorf("%s %d: %w", what, value, ucs.ErrInvalidParam))
}

// wireStatus returns the status that a notice contains for a failure of the group.
func wireStatus(err error) ucs.Status {
	for _, st := range wireReasons {
		if errors.Is(err, st.Err()) {
			return st
		}
	}
	return ucs.StatusInternal
}

// wireReasons are the statuses that have the same meaning in another process. For an error that wraps several reasons, the
// first one in this list is sent.
var wireReasons = [...]ucs.Status{
	ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusCanceled, ucs.StatusTruncated,
	ucs.StatusInvalidParam, ucs.StatusUnreachable, ucs.StatusRemoteAccess, ucs.StatusPeerClosed,
}
