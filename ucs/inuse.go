package ucs

import (
	"fmt"
	"strings"
	"time"
)

// RevokeLimit limits how long the close of registered memory waits for accesses of peers that began before the close.
// It is about ten times the time of a copy of 1 GiB. An access takes longer only if the peer is stopped or gets no CPU.
// The time during which this process is stopped does not count.
const RevokeLimit = time.Second

// InUseError means that memory could not be deregistered within [RevokeLimit], because accesses of peers have not
// ended. Calls that do not block return it at once. The memory is still registered, but no new access can begin. The
// caller must close the memory again, which waits again. InUseError matches ErrTimedOut.
type InUseError struct {
	PIDs []int // ids of the processes whose access has not ended, in ascending order
}

// Error returns a text with the ids of the processes.
func (e *InUseError) Error() string {
	pids := make([]string, len(e.PIDs))
	for i, pid := range e.PIDs {
		pids[i] = fmt.Sprint(pid)
	}
	return fmt.Sprintf("memory is in use by process %s: %v", strings.Join(pids, ", "), ErrTimedOut)
}

// Unwrap returns ErrTimedOut.
func (e *InUseError) Unwrap() error { return ErrTimedOut }
