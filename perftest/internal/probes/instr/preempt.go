package instr

import (
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// A goroutine that has run for 10 ms is asked to yield, and one that is stepped has run
// that long after some hundred instructions. It does so where a function begins: the
// check of the stack there fails, the scheduler runs, and the function begins again
// (runtime/stack.go: newstack). These steps are none of the operation's; where a function can be
// run over, one of them is recorded.

// moreStack begins the names of the routines that such a check calls.
const moreStack = "runtime.morestack"

// undisturbed takes out what the scheduler did and the first attempt at the function that
// was beginning. ok is false if that did not begin again with the same stack, as after
// the stack has grown.
func (r resolver) undisturbed(steps []ptrace.Step) (_ []ptrace.Step, ok bool) {
	var kept []ptrace.Step
	for i := 0; i < len(steps); i++ {
		if !strings.HasPrefix(r.at(steps[i].PC).function, moreStack) {
			kept = append(kept, steps[i])
			continue
		}
		first := r.beginning(kept)
		if first < 0 {
			return nil, false
		}
		again := slices.Index(steps[i:], kept[first])
		if again < 0 {
			return nil, false
		}
		kept = kept[:first]
		i += again - 1
	}
	return kept, true
}

// beginning is the index of the step at which the function of the last step was entered;
// -1 if it was not.
func (r resolver) beginning(steps []ptrace.Step) int {
	if len(steps) == 0 {
		return -1
	}
	entry := r.at(steps[len(steps)-1].PC).entry
	for i, s := range slices.Backward(steps) {
		if s.PC == entry {
			return i
		}
	}
	return -1
}
