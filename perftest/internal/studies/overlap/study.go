package overlap

import (
	"context"
	"fmt"
	"time"
)

// Pair is two nodes that are connected over a protocol.
type Pair interface {
	// Run runs an exchange and returns how long an iteration took on the measured side, and the
	// same work alone.
	Run(ctx context.Context, x Exchange) (Times, error)
	Close() error
}

// Times are of an iteration, on the measured side.
type Times struct {
	Iteration time.Duration
	Work      time.Duration // alone
	// Processor times in real time; 0 in virtual time.
	Program time.Duration // of the thread that computes and calls
	Process time.Duration // of all threads of the process: with those of the device in software
}

// Opener connects two nodes over a protocol. size is the longest message.
type Opener func(ctx context.Context, p Protocol, size int) (Pair, error)

// Study is what is to be measured.
type Study struct {
	Protocols  []Protocol
	Sides      []Side
	Sizes      []int // bytes
	Iterations int
	Warmup     int
	Rounds     int // how often each is run; the shortest iteration counts. 0 is one
}

// Row is what a protocol came to at a size. Times are in nanoseconds.
type Row struct {
	Side         Side
	Protocol     string
	Size         int
	Base         time.Duration
	Iteration    time.Duration // with Work
	Work         time.Duration
	Overhead     time.Duration
	Availability float64 // of 1; below 0 where an iteration with work costs more than both
	Program      time.Duration
	Process      time.Duration
}

// Refused is a protocol that could not be opened.
type Refused struct {
	Protocol string
	Reason   string
}

// enough is how much longer than base an iteration is with which work has grown enough:
// the benchmark's default threshold.
const enough = 1.5

// Sizes are powers of two from 1 byte to limit bytes.
func Sizes(limit int) (list []int) {
	for n := 1; n <= limit; n *= 2 {
		list = append(list, n)
	}
	return list
}

// Check finds mistakes.
func (s *Study) Check() error {
	switch {
	case len(s.Sizes) == 0 || len(s.Sides) == 0 || len(s.Protocols) == 0:
		return fmt.Errorf("nothing to measure")
	case s.Iterations < 1 || s.Warmup < 0 || s.Rounds < 0:
		return fmt.Errorf("%d iterations after %d, in %d rounds", s.Iterations, s.Warmup, s.Rounds)
	}
	for _, n := range s.Sizes {
		if n < 1 || n > MaxSize {
			return fmt.Errorf("a message of %d bytes: want 1 to %d", n, MaxSize)
		}
	}
	return nil
}

// MaxSize is the longest message in bytes.
const MaxSize = 1 << 30

// Cases is how many rows there will be at most.
func (s *Study) Cases() int { return len(s.Protocols) * len(s.Sides) * len(s.Sizes) }

// Run measures all. step, which may be nil, is told of each row.
func (s *Study) Run(ctx context.Context, open Opener, step func(label string)) (rows []Row, refused []Refused, err error) {
	for _, p := range s.Protocols {
		if _, err := p.Config(); err != nil {
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

func (s *Study) protocol(ctx context.Context, open Opener, p Protocol, step func(string)) (rows []Row, err error) {
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

// measure has the work grow until an iteration takes enough longer.
func (s *Study) measure(ctx context.Context, pair Pair, x Exchange) (r Row, err error) {
	base, err := s.best(ctx, pair, x)
	if err != nil {
		return r, err
	}
	for x.Work = max(base.Iteration/8, time.Nanosecond); ; x.Work += x.Work/4 + 1 {
		t, err := s.best(ctx, pair, x)
		if err != nil {
			return r, err
		}
		if float64(t.Iteration) < enough*float64(base.Iteration) {
			continue
		}
		r = Row{Side: x.Side, Size: x.Size, Base: base.Iteration, Iteration: t.Iteration, Work: t.Work,
			Overhead: t.Iteration - t.Work, Program: t.Program, Process: t.Process}
		r.Availability = 1 - float64(r.Overhead)/float64(r.Base)
		return r, nil
	}
}

// best is the run that was disturbed least. Work alone is taken apart from it.
func (s *Study) best(ctx context.Context, pair Pair, x Exchange) (best Times, err error) {
	for i := range max(s.Rounds, 1) {
		t, err := pair.Run(ctx, x)
		if err != nil {
			return best, err
		}
		work := t.Work
		if i > 0 {
			work = min(work, best.Work)
		}
		if i == 0 || t.Iteration < best.Iteration {
			best = t
		}
		best.Work = work
	}
	return best, nil
}
