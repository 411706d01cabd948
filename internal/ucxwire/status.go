package ucxwire

import "github.com/gucx/gucx/ucs"

// Status is a ucs_status_t of UCX as it travels: one signed byte, 0 for success, negative for errors.
type Status int8

// statuses pairs UCX's numbers with the ones here. The first pair of a status is the one to send.
var statuses = [...]struct {
	there Status
	here  ucs.Status
}{
	{0, ucs.StatusOK},
	{-2, ucs.StatusNoResource},
	{-3, ucs.StatusIOError},
	{-4, ucs.StatusNoMemory},
	{-5, ucs.StatusInvalidParam},
	{-6, ucs.StatusUnreachable},
	{-7, ucs.StatusInvalidAddr},
	{-8, ucs.StatusNotImplemented},
	{-9, ucs.StatusTruncated},
	{-16, ucs.StatusCanceled},
	{-20, ucs.StatusTimedOut},
	{-22, ucs.StatusUnsupported},
	{-23, ucs.StatusRejected},
	{-25, ucs.StatusConnReset},
	{-24, ucs.StatusConnReset},
	{-80, ucs.StatusTimedOut},
	{-3, ucs.StatusInternal},
	{-5, ucs.StatusRemoteInvalid},
	{-5, ucs.StatusRemoteAccess},
}

// Local returns what the number of the peer means: StatusInternal for numbers without a meaning here.
func (s Status) Local() ucs.Status {
	for _, p := range statuses {
		if p.there == s {
			return p.here
		}
	}
	return ucs.StatusInternal
}

// StatusOf returns UCX's number for a status: input/output error for one that UCX does not have.
func StatusOf(st ucs.Status) Status {
	for _, p := range statuses {
		if p.here == st {
			return p.there
		}
	}
	return -3
}
