package ucs

// Status is how an operation ended. It is a small integer for completions and
// requests, and deliberately not an error: the zero value means success, and a
// success stored in an error variable would not be nil. Use Err.
type Status int8

// Status values; the names and order of UCX's ucs_status_t where it has them.
const (
	StatusOK         Status = iota
	StatusInProgress        // not ended yet
	StatusNoResource
	StatusIOError
	StatusNoMemory
	StatusInvalidParam
	StatusUnreachable
	StatusInvalidAddr
	StatusNotImplemented
	StatusTruncated     // the message was longer than the receive buffer
	StatusCanceled      // canceled, or the EP was closed under it
	StatusRemoteAccess  // bad key, range or right on the target
	StatusConnReset     // the peer closed, died or vanished
	StatusTimedOut      // retries exhausted without an answer
	StatusRejected      // the peer refused
	StatusUnsupported   // the operation does not exist here
	StatusLocalAccess   // bad local key, range or right
	StatusInternal      // a broken invariant of gucx or of the device
	StatusRemoteInvalid // the target refused the request as malformed
	StatusRNR           // the target had no receive buffer, retries exhausted
	statusEnd
)

var statusErrs = [statusEnd]error{
	StatusInProgress:     ErrInProgress,
	StatusNoResource:     ErrNoResource,
	StatusIOError:        ErrIO,
	StatusNoMemory:       ErrNoMemory,
	StatusInvalidParam:   ErrInvalidParam,
	StatusUnreachable:    ErrUnreachable,
	StatusInvalidAddr:    ErrInvalidAddr,
	StatusNotImplemented: ErrUnsupported,
	StatusTruncated:      ErrTruncated,
	StatusCanceled:       ErrCanceled,
	StatusRemoteAccess:   ErrRemoteAccess,
	StatusConnReset:      ErrConnReset,
	StatusTimedOut:       ErrTimedOut,
	StatusRejected:       ErrRejected,
	StatusUnsupported:    ErrUnsupported,
	StatusLocalAccess:    ErrLocalAccess,
	StatusInternal:       ErrInternal,
	StatusRemoteInvalid:  ErrRemoteInvalid,
	StatusRNR:            ErrRNR,
}

// Err returns nil for StatusOK and the sentinel error of the status otherwise.
func (s Status) Err() error {
	if s == StatusOK {
		return nil
	}
	if s < 0 || s >= statusEnd {
		return ErrInternal
	}
	return statusErrs[s]
}

// String returns "ok" or the error text.
func (s Status) String() string {
	if s == StatusOK {
		return "ok"
	}
	return s.Err().Error()
}
