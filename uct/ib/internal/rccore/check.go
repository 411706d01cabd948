package rccore

import "github.com/gucx/gucx/uct"

// Check implements uct.Checker. An idle EP posts an RDMA write of 0 bytes, which the device of the
// peer acknowledges. An EP with work requests in flight waits for their completions.
func (e *EP) Check(c *uct.Completion) (pending bool, err error) {
	if e.state != stateReady {
		return false, e.err
	}
	if e.PI == e.CI {
		if err := e.postNop(); err != nil {
			return false, err
		}
	}
	return e.Flush(c)
}
