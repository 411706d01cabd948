package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
)

// Wait modes of -E.
const (
	waitPoll  = "poll"
	waitSleep = "sleep"
)

func waitModes() []string { return []string{waitPoll, waitSleep} }

var (
	errSleepLayer = errors.New("-E sleep is for the ucp layer")
	errSleepAlone = errors.New("-E sleep needs a target that sleeps; self is its own target")
)

// chooseWait sets the wait mode of the plan. Commands without -E poll.
func (j *job) chooseWait() error {
	if j.settings.wait == "" {
		return nil
	}
	if !slices.Contains(waitModes(), j.settings.wait) {
		return fmt.Errorf("-E %s: want %s", j.settings.wait, strings.Join(waitModes(), " or "))
	}
	j.plan.Sleep = j.settings.wait == waitSleep
	return nil
}

// checkWait rejects layers and transports that do not sleep.
func (j *job) checkWait(names []string) error {
	switch {
	case !j.plan.Sleep:
		return nil
	case !slices.Equal(names, []string{ucplayer.Name}):
		return errSleepLayer
	case j.loopback():
		return errSleepAlone
	}
	return nil
}

// waitText returns the wait mode for results; empty for the default.
func (j *job) waitText() string {
	if j.plan.Sleep {
		return waitSleep
	}
	return ""
}
