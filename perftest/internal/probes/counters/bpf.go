package counters

import (
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/bpfcount"
)

// bpfSource reads a probe before and after the operations.
type bpfSource struct {
	probe  *bpfcount.Probe
	before [bpfcount.Groups]bpfcount.Counts
}

func openBPF() (source, error) {
	p, err := bpfcount.Open()
	if err != nil {
		return nil, err
	}
	return &bpfSource{probe: p}, nil
}

func (s *bpfSource) start(w bpfcount.Watch) (err error) {
	if s.before, err = s.probe.Read(); err != nil {
		return err
	}
	s.probe.Start(w)
	return nil
}

func (s *bpfSource) stop() (all groups, err error) {
	s.probe.Stop()
	after, err := s.probe.Read()
	if err != nil {
		return all, err
	}
	for g := range all {
		all[g] = s.between(&s.before[g], &after[g])
	}
	return all, nil
}

func (s *bpfSource) close() error { return s.probe.Close() }

// bpfEvents are the names of the events of a probe.
var bpfEvents = [bpfcount.Events]string{
	bpfcount.Switches:  result.Switches,
	bpfcount.Faults:    result.Faults,
	bpfcount.Transmits: result.Transmits,
	bpfcount.Receives:  result.Receives,
}

// between returns the differences of two readings.
func (s *bpfSource) between(before, after *bpfcount.Counts) totals {
	t := totals{events: map[string]uint64{}, calls: map[string]uint64{}}
	var calls uint64
	for number, n := range after.Calls {
		if n -= before.Calls[number]; n > 0 {
			t.calls[callName(number)] += n
			calls += n
		}
	}
	t.events[result.Syscalls] = calls
	for e, name := range bpfEvents {
		if s.probe.Has(bpfcount.Event(e)) {
			t.events[name] = after.Events[e] - before.Events[e]
		}
	}
	return t
}
