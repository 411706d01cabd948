package adapter

import (
	"fmt"

	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
)

// ReplyError is the error of an invalid reply of the kernel. It unwraps to ErrInternal. The adapter has destroyed the
// object that the call created.
type ReplyError struct {
	Dev    string
	Op     string // operation, for example "create QP"
	Reason string
}

// Error returns the device, the operation and the reason.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s: %s: reply of the kernel: %s", e.Dev, e.Op, e.Reason)
}

// Unwrap returns ErrInternal.
func (e *ReplyError) Unwrap() error { return ucs.ErrInternal }

// badReply returns the error of an invalid reply.
func (h *hardware) badReply(op fmt.Stringer, format string, args ...any) error {
	return &ReplyError{Dev: h.ctx.Name, Op: op.String(), Reason: fmt.Sprintf(format, args...)}
}

// lacks returns ErrUnsupported for a feature that the device or its kernel lacks.
func lacks(info *uverbs.Info, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", info.Name, fmt.Sprintf(format, args...), ucs.ErrUnsupported)
}

// invalid returns ErrInvalidParam for an argument that refers to no object.
func (h *hardware) invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", h.ctx.Name, fmt.Sprintf(format, args...), ucs.ErrInvalidParam)
}
