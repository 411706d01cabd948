package ucs_test

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// The three kinds of errors: flow control is compared, a completion has a status, and what
// is set up tells where it failed and why.
func Example() {
	post := func() error { return ucs.ErrNoResource }
	if post() == ucs.ErrNoResource {
		fmt.Println("make progress, then post again")
	}

	var status ucs.Status // of a completion; the zero value is success
	fmt.Println(status.Err())
	status = ucs.StatusTruncated
	fmt.Println(errors.Is(status.Err(), ucs.ErrTruncated))

	var err error = &ucs.OpError{TL: "rc", Dev: "softhca0:1", Op: "modify qp 0x1a2 to RTR", Err: ucs.ErrTimedOut}
	fmt.Println(err)
	fmt.Println(errors.Is(ucs.EPFailed(err), ucs.ErrTimedOut), errors.Is(ucs.EPFailed(err), ucs.ErrEPFailed))
	// Output:
	// make progress, then post again
	// <nil>
	// true
	// rc softhca0:1: modify qp 0x1a2 to RTR: operation timed out
	// true true
}
