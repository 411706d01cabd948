package ucs

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// RevokeLimit bounds how long closing registered memory waits for peers that are in
// the middle of an access that they began before: some ten times what a copy of 1 GiB
// takes. Only a peer that is stopped, or starved of a processor, takes longer.
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

// Pauses of AwaitUse: at first what a peer that runs takes at most for a copy, then longer
// ones.
const (
	usePauseMin = 10 * time.Microsecond
	usePauseMax = 2 * time.Millisecond
)

// AwaitUse calls stop, which does not wait, until that returns another error than an
// [InUseError], or none, for [RevokeLimit] at most. It returns the last error.
func AwaitUse(stop func() error) error {
	err := stop()
	var inUse *InUseError
	for pause, end := usePauseMin, time.Now().Add(RevokeLimit); errors.As(err, &inUse) && time.Now().Before(end); err = stop() {
		time.Sleep(pause)
		pause = min(2*pause, usePauseMax)
	}
	return err
}
