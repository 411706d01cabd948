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

// Auto selects the first source that works.
const Auto = "auto"

// totals are events of one group by name, and system calls by name; nil if the source does not
// count the group.
type totals struct {
	events, calls map[string]uint64
}

// groups are the totals of all groups.
type groups [bpfcount.Groups]totals

// source counts between start and stop, for watch. The thread of watch is the calling one.
type source interface {
	start(bpfcount.Watch) error
	stop() (groups, error)
	close() error
}

// sources lists the sources in the order in which Open tries them.
var sources = []struct {
	name string
	open func() (source, error)
}{
	{"bpf", openBPF},
	{"perf", openPerf},
	{"rusage", openRusage},
}

// Choices lists the arguments of Open: Auto, then the sources.
func Choices() []string {
	names := []string{Auto}
	for _, s := range sources {
		names = append(names, s.name)
	}
	return names
}

// Check returns an error for an unknown choice.
func Check(choice string) error {
	if !slices.Contains(Choices(), choice) {
		return fmt.Errorf("source of counters %q: there are %s", choice, strings.Join(Choices(), ", "))
	}
	return nil
}

// Counter is an open source. Only one goroutine, locked to its thread, may use it.
type Counter struct {
	source source
	about  result.CounterSource
	peer   int
}

// Open opens the source with a name, or with Auto the first that works. peer is the process id of
// the target, 0 if the target has no process of its own. The caller must call Close.
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

// Source returns the name of the source, and the errors of better ones.
func (c *Counter) Source() result.CounterSource { return c.about }

// Start starts counting for the calling thread, its process and the target.
func (c *Counter) Start() error {
	return c.source.start(bpfcount.Watch{Thread: unix.Gettid(), Process: os.Getpid(), Peer: c.peer})
}

// Stop stops counting and returns the counts per operation, for ops operations.
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

// Close closes the source. Idempotent.
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
