package rccore

import "github.com/gucx/gucx/uct"

// Check implements uct.Checker: an idle EP posts a write of no bytes, which the device of
// the peer acknowledges; a busy one waits for what is under way.
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
