package counters

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/bpfcount"
)

// rusageSource returns the difference of two getrusage calls.
type rusageSource struct{ thread, process unix.Rusage }

func openRusage() (source, error) { return &rusageSource{}, nil }

// start reads the process first, and stop reads it last, so that it includes the thread.
func (s *rusageSource) start(bpfcount.Watch) error {
	if err := unix.Getrusage(unix.RUSAGE_SELF, &s.process); err != nil {
		return os.NewSyscallError("getrusage", err)
	}
	return os.NewSyscallError("getrusage", unix.Getrusage(unix.RUSAGE_THREAD, &s.thread))
}

func (s *rusageSource) stop() (all groups, err error) {
	var thread, process unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &thread); err != nil {
		return all, os.NewSyscallError("getrusage", err)
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &process); err != nil {
		return all, os.NewSyscallError("getrusage", err)
	}
	caller, whole := usageSince(&s.thread, &thread), usageSince(&s.process, &process)
	rest := map[string]uint64{}
	for name, n := range whole {
		rest[name] = n - min(n, caller[name])
	}
	all[bpfcount.Caller].events, all[bpfcount.Rest].events = caller, rest
	return all, nil
}

func (s *rusageSource) close() error { return nil }

// usageSince returns the difference of two readings, without the times: those of a running thread
// are late by up to a tick.
func usageSince(before, after *unix.Rusage) map[string]uint64 {
	return map[string]uint64{
		result.Switches: uint64(after.Nvcsw + after.Nivcsw - before.Nvcsw - before.Nivcsw),
		result.Faults:   uint64(after.Minflt + after.Majflt - before.Minflt - before.Majflt),
	}
}
