package guard

import (
	"errors"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// AwaitUse calls stop, which does not wait, until that returns another error than an
// [ucs.InUseError], or none, for [ucs.RevokeLimit] at most. It returns the last error.
func AwaitUse(stop func() error) error {
	var err error
	var inUse *ucs.InUseError
	timelimit.Await(ucs.RevokeLimit, func() bool {
		err = stop()
		return !errors.As(err, &inUse)
	})
	return err
}
