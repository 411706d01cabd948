package prm

import "github.com/gucx/gucx/uct/ib/verbs"

// Syndrome is the reason why a work request has failed: byte 55 of an error CQE
// (mlx5dv.h, MLX5_CQE_SYNDROME_*).
type Syndrome uint8

// Syndromes. SyndromeOK is not in the format: decoders return it for no error.
const (
	SyndromeOK               Syndrome = 0x00
	SyndromeLocalLength      Syndrome = 0x01
	SyndromeLocalQPOp        Syndrome = 0x02
	SyndromeLocalProt        Syndrome = 0x04
	SyndromeWRFlush          Syndrome = 0x05
	SyndromeMWBind           Syndrome = 0x06
	SyndromeBadResp          Syndrome = 0x10
	SyndromeLocalAccess      Syndrome = 0x11
	SyndromeRemoteInvalidReq Syndrome = 0x12
	SyndromeRemoteAccess     Syndrome = 0x13
	SyndromeRemoteOp         Syndrome = 0x14
	SyndromeRetryExceeded    Syndrome = 0x15
	SyndromeRNRExceeded      Syndrome = 0x16
	SyndromeRemoteAborted    Syndrome = 0x22
)

// Status returns the work completion status for the syndrome of an error CQE;
// WCGeneralErr for an unknown syndrome, and for SyndromeOK, which such a CQE cannot
// have.
func (s Syndrome) Status() verbs.WCStatus {
	switch s {
	case SyndromeLocalLength:
		return verbs.WCLocLenErr
	case SyndromeLocalQPOp:
		return verbs.WCLocQPOpErr
	case SyndromeLocalProt:
		return verbs.WCLocProtErr
	case SyndromeWRFlush:
		return verbs.WCWRFlushErr
	case SyndromeMWBind:
		return verbs.WCMWBindErr
	case SyndromeBadResp:
		return verbs.WCBadRespErr
	case SyndromeLocalAccess:
		return verbs.WCLocAccessErr
	case SyndromeRemoteInvalidReq:
		return verbs.WCRemInvReqErr
	case SyndromeRemoteAccess:
		return verbs.WCRemAccessErr
	case SyndromeRemoteOp:
		return verbs.WCRemOpErr
	case SyndromeRetryExceeded:
		return verbs.WCRetryExcErr
	case SyndromeRNRExceeded:
		return verbs.WCRNRRetryExcErr
	case SyndromeRemoteAborted:
		return verbs.WCRemAbortErr
	}
	return verbs.WCGeneralErr
}
