package ucs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Flow control: returned bare, never wrapped, compared with ==.
var (
	ErrNoResource = errors.New("no resources are available to initiate the operation")
	ErrBusy       = errors.New("device is busy")
)

// Reasons of failures. The caller must compare them with errors.Is, because other errors may wrap them.
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
	ErrConnReset     = errors.New("connection reset by remote peer") // the process of the peer died, or the peer cannot be reached any more
	ErrPeerClosed    = errors.New("peer closed the connection")      // the peer closed gracefully
	ErrStreamEnded   = errors.New("peer ended its stream")           // the connection is still open
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

// EPFailed returns the error of an EP that has failed because of err. The result has the text of err, wraps err and
// also matches ErrEPFailed.
func EPFailed(err error) error { return &epFailed{err} }

type epFailed struct{ reason error }

func (e *epFailed) Error() string        { return e.reason.Error() }
func (e *epFailed) Unwrap() error        { return e.reason }
func (e *epFailed) Is(target error) bool { return target == ErrEPFailed }

// Because returns an error that matches both the error of st and detail. Its text names both, unless detail wraps the
// error of st already. detail may be nil.
func Because(st Status, detail error) error {
	switch {
	case detail == nil:
		return st.Err()
	case errors.Is(detail, st.Err()):
		return detail
	}
	return fmt.Errorf("%w: %w", st.Err(), detail)
}

// Join is errors.Join, but the text of the result is one line: the texts of errs are separated by "; ".
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return joined(errs)
}

type joined []error

func (j joined) Unwrap() []error { return j }

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// OpError is the error of a failed operation on an object. Its text is object, operation and cause:
// "rc softhca0:1: modify qp 0x1a2 to RTR: operation timed out".
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
