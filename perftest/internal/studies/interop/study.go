package interop

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/measure/stat"
)

// Study selects the measurements.
type Study struct {
	Tests      []Test `json:"tests"`
	Sizes      []int  `json:"sizes"`      // bytes
	Iterations int    `json:"iterations"` // operations in all rounds
	Warmup     int    `json:"warmup"`     // untimed operations at the start of each round
	Rounds     int    `json:"rounds"`
	Window     int    `json:"window"` // operations in flight in tests of bandwidth
	CPUs       []int  `json:"cpus"`   // CPUs of initiator and target; empty: any
}

// Errors of measurements.
var (
	ErrStudy = errors.New("cannot be measured")
	ErrData  = errors.New("wrong data")
)

// Limits of a study.
const (
	MaxSize   = 64 << 20 // bytes
	MaxWindow = 4096
)

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	switch {
	case len(s.Tests) == 0 || len(s.Sizes) == 0:
		return fmt.Errorf("%w: no tests or sizes", ErrStudy)
	case s.Iterations < 1 || s.Warmup < 0 || s.Rounds < 1 || s.Window < 1 || s.Window > MaxWindow:
		return fmt.Errorf("%w: %d iterations after %d in %d rounds with windows of %d (%d at most)", ErrStudy, s.Iterations, s.Warmup, s.Rounds, s.Window, MaxWindow)
	}
	for _, size := range s.Sizes {
		if size < 1 || size > MaxSize {
			return fmt.Errorf("%w: size %d is outside 1..%d", ErrStudy, size, MaxSize)
		}
	}
	return nil
}

// pairs lists the pairs of initiator and target. The others are compared with the first.
func pairs(ucx, gucx Program) [][2]Program {
	return [][2]Program{{ucx, ucx}, {gucx, ucx}, {ucx, gucx}, {gucx, gucx}}
}

// numPairs is the number of pairs.
const numPairs = 4

// Turns returns the number of calls of step by Run.
func (s *Study) Turns() int { return len(s.Tests) * len(s.Sizes) * s.Rounds * numPairs }

// Row is a test at a size between two programs.
type Row struct {
	Test string  `json:"test"`
	Size int     `json:"size"`
	Pair string  `json:"pair"`
	NS   float64 `json:"ns"` // per operation, or per message of a ping-pong: the median over rounds
	Rate float64 `json:"msg_per_s"`
	MiB  float64 `json:"mib_per_s"`
	// Ratio is NS divided by that of UCX on both sides: the median of the rounds. Least and Most are the extremes of
	// the rounds.
	Ratio float64 `json:"ratio"`
	Least float64 `json:"ratio_min"`
	Most  float64 `json:"ratio_max"`
}

// lockThread locks the goroutine to its thread: child processes end with the thread that started them.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// Run measures everything; in each round all pairs take turns. step is called before each turn. After an error it also
// returns the rows of the tests and sizes that are complete.
func (s *Study) Run(ctx context.Context, ucx, gucx Program, step func(test string, size int)) (rows []Row, err error) {
	defer lockThread()()
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var all []*pair
	for _, sides := range pairs(ucx, gucx) {
		p, err := newPair(ctx, sides[0], sides[1], s)
		if err != nil {
			return nil, err
		}
		undo.Add(p.close)
		all = append(all, p)
	}
	for _, t := range s.Tests {
		for _, size := range s.Sizes {
			more, err := s.cell(ctx, all, t, size, step)
			if err != nil {
				return rows, err
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

// smallSize is the largest size, in bytes, for which all iterations are run; larger sizes have fewer iterations, which
// move the same number of bytes.
const smallSize = 8 << 10

// count returns the number of operations of a size in a round.
func count(ops, size int) int {
	if size > smallSize {
		ops = int(int64(ops) * smallSize / int64(size))
	}
	return max(ops, 1)
}

func (s *Study) cell(ctx context.Context, all []*pair, t Test, size int, step func(test string, size int)) (rows []Row, err error) {
	width := 1
	if t.Width {
		width = s.Window
	}
	taken := make([][]float64, len(all))
	for range s.Rounds {
		for i, p := range all {
			step(t.Name, size)
			ns, err := p.run(ctx, t, size, count(s.Warmup, size), count(s.Iterations/s.Rounds, size), width)
			if err != nil {
				return nil, fmt.Errorf("%s of %d bytes, %s: %w", t.Name, size, p.name, err)
			}
			taken[i] = append(taken[i], ns)
		}
	}
	for i, p := range all {
		rows = append(rows, newRow(t, size, p.name, taken[i], taken[0]))
	}
	return rows, nil
}

// newRow summarizes the rounds of a pair; base are those of UCX on both sides.
func newRow(t Test, size int, name string, rounds, base []float64) Row {
	ns := stat.Median(rounds)
	r := Row{Test: t.Name, Size: size, Pair: name, NS: ns, Rate: 1e9 / ns, MiB: 1e9 / ns * float64(size) / (1 << 20)}
	ratios := make([]float64, len(rounds))
	for i := range rounds {
		ratios[i] = rounds[i] / base[i]
	}
	r.Ratio = stat.Median(ratios)
	for i, x := range ratios {
		if i == 0 {
			r.Least, r.Most = x, x
		}
		r.Least, r.Most = min(r.Least, x), max(r.Most, x)
	}
	return r
}
