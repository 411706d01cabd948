package ucs

// Status is the result of an operation, as a small integer for completions and requests. The zero value means success.
// Status does not implement error, because StatusOK in a variable of type error would not be nil. Err returns the
// error.
type Status int8

// Status values, with the names of UCX's ucs_status_t if it has the value. Messages between processes contain these
// numbers, so a number never changes its meaning.
const (
	StatusOK             Status = 0
	StatusInProgress     Status = 1 // not complete yet
	StatusNoResource     Status = 2
	StatusIOError        Status = 3
	StatusNoMemory       Status = 4
	StatusInvalidParam   Status = 5
	StatusUnreachable    Status = 6
	StatusInvalidAddr    Status = 7
	StatusNotImplemented Status = 8
	StatusTruncated      Status = 9  // the message was longer than the receive buffer
	StatusCanceled       Status = 10 // canceled, or the EP was closed before the operation was complete
	StatusRemoteAccess   Status = 11 // the key, the range or the access right is not valid at the target
	StatusConnReset      Status = 12 // the peer died, or cannot be reached any more
	StatusTimedOut       Status = 13 // no reply after all retries
	StatusRejected       Status = 14 // the peer rejected the operation
	StatusUnsupported    Status = 15 // the transport does not have the operation
	StatusLocalAccess    Status = 16 // the local key, range or access right is not valid
	StatusInternal       Status = 17 // a broken invariant of gucx or of the device
	StatusRemoteInvalid  Status = 18 // the target rejected the request as malformed
	StatusRNR            Status = 19 // the target had no receive buffer, after all retries
	StatusPeerClosed     Status = 20 // the peer closed gracefully
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
