package overlap

import (
	"context"
	"fmt"
	"time"

	"github.com/gucx/gucx/perftest/internal/studies/protocol"
)

// Pair is two nodes that are connected with a protocol.
type Pair interface {
	// Run runs an exchange and returns the time of an iteration on the measured side.
	Run(ctx context.Context, x Exchange) (Times, error)
	Close() error
}

// Times are the times of an iteration, on the measured side.
type Times struct {
	Iteration time.Duration
	// CPU times in real time; 0 in virtual time.
	Program time.Duration // of the thread that computes and calls
	Process time.Duration // of all threads of the process, including those of the device in software
}

// Opener connects two nodes with a protocol. size is the maximum length of a message.
type Opener func(ctx context.Context, p protocol.Protocol, size int) (Pair, error)

// Study selects the measurements.
type Study struct {
	Protocols  protocol.List
	Sides      []Side
	Sizes      []int // bytes
	Iterations int
	Warmup     int
	Rounds     int // number of rounds of each; the shortest iteration counts. 0 means one
}

// Row is the result of a protocol at a size. Times are in nanoseconds.
type Row struct {
	Side         Side
	Protocol     string
	Size         int
	Base         time.Duration
	Iteration    time.Duration // with Work
	Work         time.Duration // of an iteration without the message
	Overhead     time.Duration
	Availability float64 // of 1; below 0 if an iteration with work takes longer than both together
	Program      time.Duration
	Process      time.Duration
}

// Refused is a protocol that could not be opened.
type Refused struct {
	Protocol string
	Reason   string
}

// Thresholds of the benchmark. The work is long enough when an iteration takes more than enough
// times base. The documentation of the benchmark uses 1.5 to 2; with 1.5 the barrier after a
// message of a byte is not yet hidden. Base is the mean of the iterations that are shorter than
// flat times base.
const (
	enough = 2
	flat   = 1.02
)

// Work starts with first, which is a few hundredths of the shortest iteration, and grows by the
// factor growth, as in the benchmark.
const (
	firstWork = 64 * time.Nanosecond
	growth    = 2
)

// Sizes are powers of two from 1 byte to limit bytes.
func Sizes(limit int) (list []int) {
	for n := 1; n <= limit; n *= 2 {
		list = append(list, n)
	}
	return list
}

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	switch {
	case len(s.Sizes) == 0 || len(s.Sides) == 0 || len(s.Protocols) == 0:
		return fmt.Errorf("nothing to measure")
	case s.Iterations < 1 || s.Warmup < 0 || s.Rounds < 0:
		return fmt.Errorf("%d iterations after %d to warm up, in %d rounds: want no number below 0", s.Iterations, s.Warmup, s.Rounds)
	}
	for _, n := range s.Sizes {
		if n < 1 || n > MaxSize {
			return fmt.Errorf("a message of %d bytes: want 1 to %d", n, MaxSize)
		}
	}
	return nil
}

// MaxSize returns the maximum length of a message in bytes.
const MaxSize = 1 << 30

// Cases returns the maximum number of rows.
func (s *Study) Cases() int { return len(s.Protocols) * len(s.Sides) * len(s.Sizes) }

// Run measures everything. step, which may be nil, is called after each row.
func (s *Study) Run(ctx context.Context, open Opener, step func(label string)) (rows []Row, refused []Refused, err error) {
	for _, p := range s.Protocols {
		if _, err := Config(p); err != nil {
			refused = append(refused, Refused{p.Name, err.Error()})
			continue
		}
		more, err := s.protocol(ctx, open, p, step)
		rows = append(rows, more...)
		if err != nil {
			return rows, refused, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return rows, refused, nil
}

func (s *Study) protocol(ctx context.Context, open Opener, p protocol.Protocol, step func(string)) (rows []Row, err error) {
	longest := 0
	for _, n := range s.Sizes {
		longest = max(longest, n)
	}
	pair, err := open(ctx, p, longest)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := pair.Close(); err == nil {
			err = e
		}
	}()
	for _, side := range s.Sides {
		for _, n := range s.Sizes {
			if step != nil {
				step(p.Name + " " + string(side))
			}
			r, err := s.measure(ctx, pair, Exchange{Side: side, Size: n, Iterations: s.Iterations, Warmup: s.Warmup})
			if err != nil {
				return rows, fmt.Errorf("%s of %d bytes: %w", side, n, err)
			}
			r.Protocol = p.Name
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// measure increases the work until an iteration takes enough longer than base.
func (s *Study) measure(ctx context.Context, pair Pair, x Exchange) (r Row, err error) {
	var base mean
	for x.Work = firstWork; ; x.Work *= growth {
		t, err := s.best(ctx, pair, x)
		if err != nil {
			return r, err
		}
		if base.n > 0 && float64(t.Iteration) > enough*base.value() {
			return s.row(ctx, pair, x, base.value(), t)
		}
		if base.n == 0 || float64(t.Iteration) < flat*base.value() {
			base.add(t.Iteration)
		}
	}
}

// row measures the same without the message, and computes the result.
func (s *Study) row(ctx context.Context, pair Pair, x Exchange, base float64, t Times) (r Row, err error) {
	x.NoMessage = true
	work, err := s.best(ctx, pair, x)
	if err != nil {
		return r, err
	}
	r = Row{Side: x.Side, Size: x.Size, Base: time.Duration(base), Iteration: t.Iteration, Work: work.Iteration,
		Overhead: t.Iteration - work.Iteration, Program: t.Program, Process: t.Process}
	r.Availability = 1 - float64(r.Overhead)/base
	return r, nil
}

// mean returns the mean of times.
type mean struct {
	sum time.Duration
	n   int
}

func (m *mean) add(t time.Duration) { m.sum, m.n = m.sum+t, m.n+1 }

func (m *mean) value() float64 { return float64(m.sum) / float64(m.n) }

// best returns the run that was disturbed least.
func (s *Study) best(ctx context.Context, pair Pair, x Exchange) (best Times, err error) {
	for i := range max(s.Rounds, 1) {
		t, err := pair.Run(ctx, x)
		if err != nil {
			return best, err
		}
		if i == 0 || t.Iteration < best.Iteration {
			best = t
		}
	}
	return best, nil
}
