package counters

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/bpfcount"
)

// Auto is the choice of the first source that works.
const Auto = "auto"

// totals are events of one group by name, and system calls by name; nil if the source
// does not see the group.
type totals struct {
	events, calls map[string]uint64
}

// groups are the totals of all groups.
type groups [bpfcount.Groups]totals

// source counts between start and stop, for watch, whose thread is the calling one.
type source interface {
	start(bpfcount.Watch) error
	stop() (groups, error)
	close() error
}

// sources in the order in which Open tries them.
var sources = []struct {
	name string
	open func() (source, error)
}{
	{"bpf", openBPF},
	{"perf", openPerf},
	{"rusage", openRusage},
}

// Choices lists what Open takes: Auto first, then the sources.
func Choices() []string {
	names := []string{Auto}
	for _, s := range sources {
		names = append(names, s.name)
	}
	return names
}

// Check refuses a choice that there is not.
func Check(choice string) error {
	if !slices.Contains(Choices(), choice) {
		return fmt.Errorf("source of counters %q: there are %s", choice, strings.Join(Choices(), ", "))
	}
	return nil
}

// Counter is an open source. One goroutine, locked to its thread, uses it.
type Counter struct {
	source source
	about  result.CounterSource
	peer   int
}

// Open opens the source of that name, or with Auto the first that works. peer is the
// process id of the target, 0 if it has no process of its own. Close it.
func Open(choice string, peer int) (*Counter, error) {
	if err := Check(choice); err != nil {
		return nil, err
	}
	var refused []error
	for _, s := range sources {
		if choice != Auto && choice != s.name {
			continue
		}
		src, err := s.open()
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		about := result.CounterSource{Name: s.name}
		for _, err := range refused {
			about.Refused = append(about.Refused, err.Error())
		}
		return &Counter{source: src, about: about, peer: peer}, nil
	}
	return nil, fmt.Errorf("counters: %w", errors.Join(refused...))
}

// Source tells which one it is, and why not a better one.
func (c *Counter) Source() result.CounterSource { return c.about }

// Start begins to count for the calling thread, its process and the target.
func (c *Counter) Start() error {
	return c.source.start(bpfcount.Watch{Thread: unix.Gettid(), Process: os.Getpid(), Peer: c.peer})
}

// Stop ends it and returns what there was for each of ops operations.
func (c *Counter) Stop(ops int) (*result.Counters, error) {
	all, err := c.source.stop()
	if err != nil {
		return nil, err
	}
	r := &result.Counters{Ops: ops, Caller: *all[bpfcount.Caller].each(ops), Rest: *all[bpfcount.Rest].each(ops)}
	if c.peer != 0 {
		r.Target = all[bpfcount.Peer].each(ops)
	}
	return r, nil
}

// Close ends the source. Idempotent.
func (c *Counter) Close() error { return c.source.close() }

// each divides by the number of operations.
func (t totals) each(ops int) *result.Usage {
	share := func(m map[string]uint64) map[string]float64 {
		if m == nil {
			return nil
		}
		shares := make(map[string]float64, len(m))
		for name, n := range m {
			shares[name] = float64(n) / float64(ops)
		}
		return shares
	}
	return &result.Usage{Events: share(t.events), Calls: share(t.calls)}
}
