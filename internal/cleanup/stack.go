// Package cleanup undoes what a constructor has done when it does not get to its
// end, and closes what an object owns, in reverse order.
//
//	func Open() (_ *Iface, err error) {
//		var undo cleanup.Stack
//		defer func() {
//			if err != nil {
//				err = errors.Join(err, undo.Run())
//			}
//		}()
//		cq, err := ctx.CreateCQ(depth)
//		if err != nil {
//			return nil, err
//		}
//		undo.Add(cq.Close)
//		…
//		return &Iface{cq: cq}, nil
//	}
package cleanup

import "errors"

// Stack is a list of steps to take back. The zero value is empty and ready. It
// belongs to one goroutine.
type Stack struct {
	steps []func() error
}

// Add puts a step on top: it runs before those added earlier. Nil is ignored.
func (s *Stack) Add(step func() error) {
	if step != nil {
		s.steps = append(s.steps, step)
	}
}

// Run takes the steps in reverse order, each once and all of them even if one
// returns an error, and empties the stack. It returns the errors joined, in the
// order in which they came; nil if there was none. A step that panics ends Run;
// a second Run goes on with the rest.
func (s *Stack) Run() error {
	var errs []error
	for len(s.steps) > 0 {
		last := len(s.steps) - 1
		step := s.steps[last]
		s.steps[last] = nil
		s.steps = s.steps[:last]
		if err := step(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Release forgets the steps: what they would take back now belongs to somebody
// else. It returns a stack that has them, for an owner that closes by Run.
func (s *Stack) Release() Stack {
	kept := *s
	*s = Stack{}
	return kept
}

// Len is the number of steps that Run would take.
func (s *Stack) Len() int { return len(s.steps) }
