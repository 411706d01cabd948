package ucprpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// Code is the reason why a call failed. The reply carries it.
type Code uint16

// Codes below CodeUser are those of this package.
const (
	CodeFailed      Code = 1 + iota // the handler returned an error without a code
	CodeCanceled                    // the context of the caller was canceled
	CodeDeadline                    // the deadline of the caller has passed
	CodeBusy                        // a limit of the peer, or MaxCalls here, was reached; the handler has not run
	CodeDraining                    // the peer shuts down; the handler has not run
	CodeNoMethod                    // the peer has no such method
	CodeTooLong                     // the request or the reply is longer than the limit
	CodeUnavailable                 // there is no connection; the request was not sent
	CodeLost                        // the connection failed after the request was sent: the handler may have run
	CodeNoMemory                    // the peer publishes no memory under that name
	CodeClosed                      // this side is closed

	CodeUser Code = 256 // the first code for applications
)

// ErrPending is returned by a handler if its call completes later: see Call.Finish.
var ErrPending = errors.New("ucprpc: the call ends later")

var codeTexts = [...]string{
	CodeFailed: "failed", CodeCanceled: "canceled", CodeDeadline: "deadline exceeded",
	CodeBusy: "a limit was reached", CodeDraining: "the server shuts down", CodeNoMethod: "no such method",
	CodeTooLong: "too long", CodeUnavailable: "not connected", CodeLost: "connection lost, the request may have run",
	CodeNoMemory: "no memory of that name", CodeClosed: "closed",
}

// codeErrors are the errors of other packages that errors.Is matches with a code.
var codeErrors = map[Code]error{
	CodeCanceled: context.Canceled, CodeDeadline: context.DeadlineExceeded, CodeTooLong: ucs.ErrTooLong, CodeClosed: ucs.ErrClosed,
}

// String returns the meaning of the code.
func (c Code) String() string {
	if int(c) < len(codeTexts) && codeTexts[c] != "" {
		return codeTexts[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// Error is the error of a call. If a handler returns an Error, its caller gets the same code, except that CodeDraining
// becomes CodeFailed, because the handler has run. errors.Is matches CodeCanceled with
// context.Canceled, CodeDeadline with context.DeadlineExceeded, CodeClosed with ucs.ErrClosed,
// CodeTooLong with ucs.ErrTooLong, and any code with the errors in Err.
type Error struct {
	Code Code
	Text string // from the handler: at most 1 KiB; empty if this side grants the peer no credit
	Err  error  // the local cause; nil if the peer has sent the error
}

// Error returns code, text and cause on one line.
func (e *Error) Error() string {
	s := "ucprpc: " + e.Code.String()
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the code matches target.
func (e *Error) Is(target error) bool { return target != nil && target == codeErrors[e.Code] }

// CodeOf returns the code of an error: 0 for nil, CodeFailed for an error without a code, also for an Error with Code 0.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return cmp.Or(e.Code, CodeFailed)
	case errors.Is(err, context.DeadlineExceeded):
		return CodeDeadline
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	}
	return CodeFailed
}

// maxErrorText limits the text of an error in a reply, in bytes.
const maxErrorText = 1 << 10

// errorText returns the text of a handler's error for the reply.
func errorText(err error) []byte {
	text := err.Error()
	if e, ok := err.(*Error); ok {
		text = e.Text
	}
	return []byte(text[:min(len(text), maxErrorText)])
}

// contextError returns the error of a call whose context has ended.
func contextError(ctx context.Context) error {
	return &Error{Code: CodeOf(ctx.Err()), Err: context.Cause(ctx)}
}
