package sm

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// statusOf returns the status of operations on an EP that fails with err.
func statusOf(err error) uct.Status {
	for _, st := range []uct.Status{ucs.StatusPeerClosed, ucs.StatusRemoteAccess, ucs.StatusNoMemory} {
		if errors.Is(err, st.Err()) {
			return st
		}
	}
	return ucs.StatusConnReset
}
