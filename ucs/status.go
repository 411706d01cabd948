package ucs

// Status is how an operation ended. It is a small integer for completions and
// requests, and deliberately not an error: the zero value means success, and a
// success stored in an error variable would not be nil. Use Err.
type Status int8

// Status values; the names and order of UCX's ucs_status_t where it has them. They
// travel between processes: a number never changes its meaning.
const (
	StatusOK             Status = 0
	StatusInProgress     Status = 1 // not ended yet
	StatusNoResource     Status = 2
	StatusIOError        Status = 3
	StatusNoMemory       Status = 4
	StatusInvalidParam   Status = 5
	StatusUnreachable    Status = 6
	StatusInvalidAddr    Status = 7
	StatusNotImplemented Status = 8
	StatusTruncated      Status = 9  // the message was longer than the receive buffer
	StatusCanceled       Status = 10 // canceled, or the EP was closed under it
	StatusRemoteAccess   Status = 11 // bad key, range or right on the target
	StatusConnReset      Status = 12 // the peer died or vanished
	StatusTimedOut       Status = 13 // retries exhausted without an answer
	StatusRejected       Status = 14 // the peer refused
	StatusUnsupported    Status = 15 // the operation does not exist here
	StatusLocalAccess    Status = 16 // bad local key, range or right
	StatusInternal       Status = 17 // a broken invariant of gucx or of the device
	StatusRemoteInvalid  Status = 18 // the target refused the request as malformed
	StatusRNR            Status = 19 // the target had no receive buffer, retries exhausted
	StatusPeerClosed     Status = 20 // the peer left in order
	StatusStreamEnded    Status = 21 // the peer has ended its stream
	statusEnd            Status = 22
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
	StatusPeerClosed:     ErrPeerClosed,
	StatusStreamEnded:    ErrStreamEnded,
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
