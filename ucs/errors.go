package ucs

import (
	"errors"
	"fmt"
	"strings"
)

// Flow control: returned bare, never wrapped, compared with ==.
var (
	ErrNoResource = errors.New("no resources are available to initiate the operation")
	ErrBusy       = errors.New("device is busy")
)

// The closed set of reasons; match with errors.Is.
var (
	ErrInProgress    = errors.New("operation in progress")
	ErrIO            = errors.New("input/output error")
	ErrNoMemory      = errors.New("out of memory")
	ErrInvalidParam  = errors.New("invalid parameter")
	ErrUnreachable   = errors.New("destination is unreachable")
	ErrInvalidAddr   = errors.New("address not valid")
	ErrInvalidRKey   = errors.New("remote key not valid")
	ErrTooLong       = errors.New("length exceeds the limit")
	ErrTruncated     = errors.New("message truncated")
	ErrCanceled      = errors.New("request canceled")
	ErrRemoteAccess  = errors.New("remote access refused")
	ErrLocalAccess   = errors.New("local access refused")
	ErrRemoteInvalid = errors.New("remote refused the request as invalid")
	ErrConnReset     = errors.New("connection reset by remote peer")
	ErrTimedOut      = errors.New("operation timed out")
	ErrRNR           = errors.New("remote had no receive buffer")
	ErrRejected      = errors.New("operation rejected by remote peer")
	ErrClosed        = errors.New("already closed")
	ErrEPFailed      = errors.New("endpoint has failed")
	ErrInternal      = errors.New("internal error")
	ErrInvalidState  = errors.New("invalid state for the operation")

	// ErrUnsupported is errors.ErrUnsupported.
	ErrUnsupported = errors.ErrUnsupported
)

// OpError says which operation on which object failed. Text: object, operation,
// cause: "rc softhca0:1: modify qp 0x1a2 to RTR: operation timed out".
type OpError struct {
	TL  string // transport or component; may be empty
	Dev string // device, with port; may be empty
	Op  string // verb and object, lowercase
	Err error  // cause
}

// Error returns the text.
func (e *OpError) Error() string {
	who := strings.TrimSpace(e.TL + " " + e.Dev)
	if who == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", who, e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }
