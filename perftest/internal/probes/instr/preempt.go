package instr

import (
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// The runtime asks a goroutine that has run for 10 ms to yield; a stepped goroutine reaches that
// after some hundred instructions. It yields at the start of a function: the stack check there
// fails, the scheduler runs, and the function starts again (runtime/stack.go: newstack). These
// steps do not count for the operation; if the function is run over, only one of them is recorded.

// moreStack is the common prefix of the routines that such a check calls.
const moreStack = "runtime.morestack"

// undisturbed removes the steps of the scheduler, and those of the first attempt at the interrupted
// function. ok is false if the function did not start again with the same stack, for example after
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

// beginning returns the index of the step at which the function of the last step was entered; -1 if
// there is none.
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
