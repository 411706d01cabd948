package ib

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// CompletionStatus returns the status of a completion. It includes what the device knows about a
// peer that does not reply.
func CompletionStatus(wc *verbs.WC) ucs.Status {
	if wc.Status == verbs.WCRetryExcErr {
		switch wc.VendorErr {
		case verbs.VendorPeerClosed:
			return ucs.StatusPeerClosed
		case verbs.VendorPeerGone:
			return ucs.StatusConnReset
		}
	}
	return Status(wc.Status)
}

// Status converts the status of a work completion. All transports use this mapping.
func Status(s verbs.WCStatus) ucs.Status {
	switch s {
	case verbs.WCSuccess:
		return ucs.StatusOK
	case verbs.WCLocLenErr:
		return ucs.StatusTruncated
	case verbs.WCLocProtErr, verbs.WCLocAccessErr, verbs.WCMWBindErr:
		return ucs.StatusLocalAccess
	case verbs.WCWRFlushErr:
		return ucs.StatusCanceled
	case verbs.WCRemAccessErr:
		return ucs.StatusRemoteAccess
	case verbs.WCRemInvReqErr:
		return ucs.StatusRemoteInvalid
	case verbs.WCRNRRetryExcErr:
		return ucs.StatusRNR
	case verbs.WCRemOpErr, verbs.WCRemAbortErr:
		return ucs.StatusConnReset
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		return ucs.StatusTimedOut // no reply: the peer, or the path to it over this device, has failed
	case verbs.WCLocQPOpErr, verbs.WCBadRespErr:
		return ucs.StatusInternal
	default: // EE contexts and tag matching, which are not used; device errors
		return ucs.StatusIOError
	}
}
