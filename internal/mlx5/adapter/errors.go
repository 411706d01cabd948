package adapter

import (
	"fmt"

	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
)

// ReplyError is an invalid reply of the kernel. It unwraps to ErrInternal. The object that the call has created is
// destroyed.
type ReplyError struct {
	Dev    string
	Op     string // what was called
	Reason string
}

// Error returns device, operation and reason.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s: %s: reply of the kernel: %s", e.Dev, e.Op, e.Reason)
}

// Unwrap returns ErrInternal.
func (e *ReplyError) Unwrap() error { return ucs.ErrInternal }

// badReply describes a reply that cannot be used.
func (h *hardware) badReply(op fmt.Stringer, format string, args ...any) error {
	return &ReplyError{Dev: h.ctx.Name, Op: op.String(), Reason: fmt.Sprintf(format, args...)}
}

// lacks is the error for what this device, or its kernel, does not have.
func lacks(info *uverbs.Info, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", info.Name, fmt.Sprintf(format, args...), ucs.ErrUnsupported)
}

// invalid is the error for an argument that names nothing.
func (h *hardware) invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", h.ctx.Name, fmt.Sprintf(format, args...), ucs.ErrInvalidParam)
}
