package ib

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// CompletionStatus is Status for a completion, with what the device knows of a peer that
// does not answer.
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

// Status is what a work completion's status means to the user of a transport.
// Both transports use this mapping and no other.
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
	case verbs.WCRemInvReqErr, verbs.WCRemInvRDReqErr:
		return ucs.StatusRemoteInvalid
	case verbs.WCRNRRetryExcErr:
		return ucs.StatusRNR
	case verbs.WCRemOpErr, verbs.WCRemAbortErr:
		return ucs.StatusConnReset
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		return ucs.StatusTimedOut // nobody answers: the peer, or the way to it over this device
	case verbs.WCLocQPOpErr, verbs.WCBadRespErr:
		return ucs.StatusInternal
	default: // EE contexts and tag matching, which we do not use; device faults
		return ucs.StatusIOError
	}
}
