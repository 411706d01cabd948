// Package cleanup has a stack of functions that run in reverse order: to undo the steps of a constructor
// that fails, and to close the parts of an object.
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

// Stack is a list of functions, each of which undoes one step. The zero value is empty and ready. Not for
// concurrent use.
type Stack struct {
	steps []func() error
}

// Add adds a function, which runs before those that were added earlier. It ignores nil.
func (s *Stack) Add(step func() error) {
	if step != nil {
		s.steps = append(s.steps, step)
	}
}

// Run removes all functions and calls them in reverse order, each once, also after an
// error. It returns the joined errors in the
// order of the calls; nil if there was none. If a function panics, Run panics too, and
// a second Run calls the rest.
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

// Release moves all functions to a new stack, which it returns: a constructor that has succeeded passes it to the
// object, whose Close calls Run.
func (s *Stack) Release() Stack {
	kept := *s
	*s = Stack{}
	return kept
}

// Len returns the number of functions.
func (s *Stack) Len() int { return len(s.steps) }
