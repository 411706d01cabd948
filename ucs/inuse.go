package ucs

import (
	"fmt"
	"strings"
	"time"
)

// RevokeLimit bounds how long closing registered memory waits for peers that are in
// the middle of an access that they began before: some ten times what a copy of 1 GiB
// takes. Only a peer that is stopped, or starved of a processor, takes longer. The time in
// which this process stands still does not count.
const RevokeLimit = time.Second

// InUseError says that memory could not be deregistered within [RevokeLimit], or without
// waiting where that is not waited for, as peers are in the middle of an access. No new
// access can begin, the memory is still registered, and closing it again waits again. It is
// an ErrTimedOut.
type InUseError struct {
	PIDs []int // of the processes inside; ascending
}

// Error names the processes.
func (e *InUseError) Error() string {
	pids := make([]string, len(e.PIDs))
	for i, pid := range e.PIDs {
		pids[i] = fmt.Sprint(pid)
	}
	return fmt.Sprintf("memory is in use by process %s: %v", strings.Join(pids, ", "), ErrTimedOut)
}

// Unwrap returns ErrTimedOut.
func (e *InUseError) Unwrap() error { return ErrTimedOut }
