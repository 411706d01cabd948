package guard

import (
	"errors"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// AwaitUse calls stop, which does not wait, until it returns nil or an error that is not
// an [ucs.InUseError], for at most [ucs.RevokeLimit]. It returns the last error.
func AwaitUse(stop func() error) error {
	var err error
	var inUse *ucs.InUseError
	timelimit.Await(ucs.RevokeLimit, func() bool {
		err = stop()
		return !errors.As(err, &inUse)
	})
	return err
}
