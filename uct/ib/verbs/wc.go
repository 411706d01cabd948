package verbs

import "strconv"

// WC is one work completion. After an error only ID, Status, VendorErr and QPN
// are valid.
type WC struct {
	ID        uint64
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	VendorErr uint8
	ByteLen   uint32 // received bytes (UD: with the 40-byte GRH area), or bytes read
	Imm       uint32 // host order; valid with WCWithImm
	QPN       uint32 // the local QP
	SrcQP     uint32 // UD: the sender's QP
}

// Values of VendorErr by which the software HCA distinguishes reasons of WCRetryExcErr. mlx5 does not use
// these values.
const (
	VendorPeerClosed uint8 = 0xc1 // the peer has closed its device or destroyed its QP
	VendorPeerGone   uint8 = 0xc2 // the peer has died or was never there
)

// WCOpcode is what completed, by the values of enum ibv_wc_opcode.
type WCOpcode uint8

// Completion opcodes.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

// WCFlags, by the values of enum ibv_wc_flags.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0 // the first 40 bytes of the buffer hold a GRH
	WCWithImm WCFlags = 1 << 1
)

// WCStatus is the result of a work request, by the values of enum ibv_wc_status. It
// is not an error, because success stored in an error would not be nil; use Err.
type WCStatus uint8

// Completion statuses and their causes. The requester is the QP with the send
// work request, the responder the QP at the other end. All but WCSuccess move the QP
// of the completion to ERR; the causes on the responder's side move both. The numbers of RD and of hardware tag
// matching, which are not there, have a text but no name.
const (
	WCSuccess WCStatus = 0
	// WCLocLenErr: at the requester, a message longer than DeviceAttr.MaxMsgSize, a
	// UD message longer than the path MTU, or an atomic to an SGE of length 0; at
	// the responder, a message longer than the posted receive.
	WCLocLenErr WCStatus = 1
	// WCLocQPOpErr: the work request is malformed. PostSend rejects such work requests,
	// so only code that writes WQEs by itself gets this.
	WCLocQPOpErr WCStatus = 2
	// WCLocProtErr: an SGE with an unknown key, beyond its region, of another PD, or
	// without AccessLocalWrite where the device writes (read, atomic, receive).
	WCLocProtErr WCStatus = 4
	// WCWRFlushErr: the work request was outstanding when the QP went to ERR, or
	// was posted after that.
	WCWRFlushErr WCStatus = 5
	// WCMWBindErr: memory window bind; there are none here.
	WCMWBindErr WCStatus = 6
	// WCBadRespErr: the response was invalid.
	WCBadRespErr WCStatus = 7
	// WCLocAccessErr: at the responder, an RDMA write with immediate whose data
	// could not be placed.
	WCLocAccessErr WCStatus = 8
	// WCRemInvReqErr: the responder has rejected the request: its QP does not grant the
	// right, the message is longer than the receive, or the request is malformed.
	WCRemInvReqErr WCStatus = 9
	// WCRemAccessErr: the responder has rejected the access: the rkey is unknown or closed or
	// of another PD, or lacks the right; the range is outside of the region; or an atomic is misaligned.
	WCRemAccessErr WCStatus = 10
	// WCRemOpErr: the responder could not complete the request, because its receive
	// named memory that the device may not write.
	WCRemOpErr WCStatus = 11
	// WCRetryExcErr: no response after all retries: the peer is gone, or its QP is
	// not connected to this one or not ready.
	WCRetryExcErr WCStatus = 12
	// WCRNRRetryExcErr: the responder had no receive, RNRRetry times.
	WCRNRRetryExcErr WCStatus = 13
	// WCRemAbortErr: the responder aborted the operation.
	WCRemAbortErr WCStatus = 16
	// WCFatalErr: the device failed.
	WCFatalErr WCStatus = 19
	// WCRespTimeoutErr: a response has not arrived in time; mlx5 has WCRetryExcErr instead.
	WCRespTimeoutErr WCStatus = 20
	// WCGeneralErr: a syndrome without a status of its own.
	WCGeneralErr WCStatus = 21

	wcStatusEnd = 24
)

var wcStatusText = [wcStatusEnd]string{
	"success", "local length error", "local QP operation error",
	"local EE context operation error", "local protection error",
	"work request flushed error", "memory bind operation error",
	"bad response error", "local access error", "remote invalid request error",
	"remote access error", "remote operation error",
	"transport retry counter exceeded", "RNR retry counter exceeded",
	"local RDD violation error", "remote invalid RD request",
	"remote aborted error", "invalid EE context number",
	"invalid EE context state", "fatal error", "response timeout error",
	"general error", "tag matching error", "tag matching rendezvous incomplete",
}

// String returns the text of ibv_wc_status_str.
func (s WCStatus) String() string {
	if int(s) < len(wcStatusText) {
		return wcStatusText[s]
	}
	return "unknown work completion status " + strconv.Itoa(int(s))
}

// Err returns nil for WCSuccess and a *WCError otherwise.
func (s WCStatus) Err() error {
	if s == WCSuccess {
		return nil
	}
	return &WCError{Status: s}
}

// WCError is a failed completion as an error.
type WCError struct{ Status WCStatus }

// Error returns the status text.
func (e *WCError) Error() string { return e.Status.String() }
