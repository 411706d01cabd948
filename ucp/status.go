package ucp

import (
	"errors"

	"github.com/gucx/gucx/ucs"
)

// statuses are the possible results of statusOf. An error may wrap several reasons: the first status that matches is the
// result, so the more specific ones are first.
var statuses = [...]ucs.Status{
	ucs.StatusRemoteAccess, ucs.StatusLocalAccess, ucs.StatusRemoteInvalid,
	ucs.StatusPeerClosed, ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusRNR, ucs.StatusRejected,
	ucs.StatusUnreachable, ucs.StatusInvalidAddr, ucs.StatusNoMemory,
	ucs.StatusTruncated, ucs.StatusUnsupported, ucs.StatusInvalidParam,
	ucs.StatusNoResource, ucs.StatusCanceled, ucs.StatusIOError,
}

// statusOf returns the status for an error of a transport. It never returns StatusOK.
func statusOf(err error) ucs.Status {
	for _, st := range statuses {
		if errors.Is(err, st.Err()) {
			return st
		}
	}
	switch {
	case errors.Is(err, ucs.ErrTooLong):
		return ucs.StatusInvalidParam
	case errors.Is(err, ucs.ErrEPFailed):
		return ucs.StatusConnReset
	case errors.Is(err, ucs.ErrClosed):
		return ucs.StatusCanceled
	}
	return ucs.StatusInternal
}
