package ucp

import (
	"fmt"
)

// Tests of package ucp_test use the following of the inside: checks of requests.

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
