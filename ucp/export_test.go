package ucp

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/ucp/internal/region"
)

// Tests of package ucp_test use the following of the inside: checks of requests, EPs and memory.

// AwaitBuffers permits an abandoned blocking call of the worker to wait for its buffer as long as a test may take: the
// threads of the other end may be stopped for longer than ucs.RevokeLimit.
func AwaitBuffers(w *Worker) { w.bufferWaitLimit = patience }

// CheckPool returns an error if the worker, which is closed, has requests that were not released, or released
// requests that still refer to something.
func CheckPool(w *Worker) error {
	if used, refer := inUse(w), unclean(w); used != 0 || refer != 0 {
		return fmt.Errorf("%d requests were not released, and %d in the pool refer to something", used, refer)
	}
	return nil
}

// RequestsInUse counts the requests of w that are not in its pool.
func RequestsInUse(w *Worker) int { return inUse(w) }

// EPs returns the EPs of w.
func (w *Worker) EPs() *handle.Table[*EP] { return &w.eps }

// Memory returns the memory of c and its domains.
func (c *Context) Memory() *region.Set { return &c.memory }

// Take returns the result of a request, which is complete, and releases it.
func (r *Request) Take() error { return r.take() }

// FinishBlocking waits for the request of a blocking call.
func (w *Worker) FinishBlocking(ctx context.Context, r *Request, err error) error {
	return w.finishBlocking(ctx, r, err)
}
