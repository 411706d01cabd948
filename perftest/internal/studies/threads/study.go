package threads

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
)

// Study selects the measurements.
type Study struct {
	Where      Where
	Tests      []Test
	Sizes      []int // bytes
	Threads    []int
	Modes      []Mode
	Iterations int // operations of each thread in all rounds
	Warmup     int // untimed operations of each thread
	Rounds     int
	Window     int
}

// ErrStudy is the error of an invalid study.
var ErrStudy = errors.New("cannot be measured")

// MaxSize is the maximum length of a message, in bytes.
const MaxSize = 64 << 20

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	switch {
	case len(s.Tests) == 0 || len(s.Sizes) == 0 || len(s.Threads) == 0 || len(s.Modes) == 0:
		return fmt.Errorf("%w: no tests, sizes, threads or modes", ErrStudy)
	case s.Iterations < 1 || s.Warmup < 0 || s.Rounds < 1 || s.Window < 1:
		return fmt.Errorf("%w: %d iterations after %d in %d rounds with windows of %d", ErrStudy, s.Iterations, s.Warmup, s.Rounds, s.Window)
	}
	for _, n := range s.Threads {
		if n < 1 || n > MaxThreads {
			return fmt.Errorf("%w: %d threads are outside 1..%d", ErrStudy, n, MaxThreads)
		}
	}
	for _, size := range s.Sizes {
		if size < 1 || size > MaxSize {
			return fmt.Errorf("%w: size %d is outside 1..%d", ErrStudy, size, MaxSize)
		}
	}
	return nil
}

// Cases returns the number of rows for all threads together.
func (s *Study) Cases() int { return len(s.Tests) * len(s.Sizes) * len(s.Threads) * len(s.Modes) }

// leastMemory is the minimum memory of a thread in each direction, in bytes: threads must not share cache lines, nor
// pairs of lines that are prefetched together.
const leastMemory = 1 << 10

// memory returns the memory that a thread needs for all parts.
func (s *Study) memory() int {
	most := leastMemory
	for _, t := range s.Tests {
		for _, size := range s.Sizes {
			most = max(most, t.memory(s.Window, size))
		}
	}
	return most
}

// Row is a test at a size with a number of threads, for all of them or for one.
type Row struct {
	Test    string `json:"test"`
	Size    int    `json:"size"`
	Mode    Mode   `json:"mode"`
	Threads int    `json:"threads"`
	Thread  int    `json:"thread"` // All, or the number of the thread
	// NS is the time per operation of all threads together, or of the thread: the median over rounds.
	NS   float64 `json:"ns"`
	Rate float64 `json:"msg_per_s"`
	MiB  float64 `json:"mib_per_s"`
	// Slowest and Fastest are the extreme rates of threads; for one thread both are its own.
	Slowest float64 `json:"slowest_msg_per_s"`
	Fastest float64 `json:"fastest_msg_per_s"`
}

// Starts contains functions that start processes.
type Starts struct {
	Target    children.Start // starts a process that calls Serve
	Initiator children.Start // starts a process that calls ServeInitiator, for Processes
}

// measured is a number of threads in a mode.
type measured struct {
	runner
	job job
}

// runner contains the processes of one number of threads in one mode.
type runner interface {
	run(part Part) (times, error)
	close() error
}

// measuredOf starts and connects the processes of a job.
func measuredOf(ctx context.Context, j job, open Open, start Starts) (runner, error) {
	if j.Mode == Processes {
		return newPairs(ctx, j, start.Initiator)
	}
	return newPair(ctx, j, open, start.Target)
}

// All is the value of Row.Thread for all threads together.
const All = -1

// Run measures everything: in each round all numbers of threads and modes take turns. step, which may be nil, is called
// before each round. There is a row for all threads, then one for each. After an error it also returns the rows of the
// tests and sizes that are complete.
func (s *Study) Run(ctx context.Context, open Open, start Starts, step func(test string, size int)) (rows []Row, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var pairs []measured
	for _, n := range s.Threads {
		for _, m := range s.Modes {
			j := job{Where: s.Where, Mode: m, Threads: n, Memory: s.memory()}
			p, err := measuredOf(ctx, j, open, start)
			if err != nil {
				return nil, fmt.Errorf("%d threads, %s: %w", n, m, err)
			}
			undo.Add(p.close)
			pairs = append(pairs, measured{p, j})
		}
	}
	for _, t := range s.Tests {
		for _, size := range s.Sizes {
			more, err := s.cell(pairs, t, size, step)
			if err != nil {
				return rows, fmt.Errorf("%s of %d bytes: %w", t.Name, size, err)
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

// smallSize is the largest size, in bytes, for which all iterations are run; larger sizes have fewer iterations, which
// move the same number of bytes.
const smallSize = 8 << 10

// part is one round of a test.
func (s *Study) part(t Test, size, round int) Part {
	window := t.windowOf(s.Window, size)
	windows := func(ops int) int {
		if size > smallSize {
			ops = int(int64(ops) * smallSize / int64(size))
		}
		return max(1, (ops+window-1)/window)
	}
	p := Part{Test: t, Size: size, Window: s.Window, Warm: 1, Windows: windows(s.Iterations / s.Rounds), Seed: uint64(round)<<32 | uint64(size)}
	if round == 0 {
		p.Warm = windows(s.Warmup)
	}
	return p
}

// cell measures a test at a size with all pairs.
func (s *Study) cell(pairs []measured, t Test, size int, step func(test string, size int)) (rows []Row, err error) {
	defer quiet()()
	taken := make([][]times, len(pairs))
	for round := range s.Rounds {
		for i, p := range pairs {
			if step != nil {
				step(t.Name, size)
			}
			one, err := p.run(s.part(t, size, round))
			if err != nil {
				return nil, fmt.Errorf("%d threads, %s: %w", p.job.Threads, p.job.Mode, err)
			}
			taken[i] = append(taken[i], one)
		}
	}
	last := s.part(t, size, s.Rounds)
	ops := last.Windows * t.windowOf(s.Window, size) * t.hops()
	for i, p := range pairs {
		rows = append(rows, rowsOf(p.job, t, size, ops, taken[i])...)
	}
	return rows, nil
}

// quieted is the number of calls of quiet that are not undone: several nodes may measure in one process, and end in any
// order.
var quieted struct {
	mu    sync.Mutex
	count int
	was   int // GC percentage before the first call; valid if count > 0
}

// quiet turns garbage collection off until the results of all calls have been called, each once.
func quiet() func() {
	quieted.mu.Lock()
	defer quieted.mu.Unlock()
	if quieted.count == 0 {
		quieted.was = debug.SetGCPercent(-1)
	}
	quieted.count++
	return func() {
		quieted.mu.Lock()
		defer quieted.mu.Unlock()
		if quieted.count--; quieted.count == 0 {
			debug.SetGCPercent(quieted.was)
		}
	}
}

// rowsOf returns the rows of one number of threads in one mode, with ops operations in each round.
func rowsOf(j job, t Test, size, ops int, rounds []times) []Row {
	all := newRow(j, t, size, All, median(rounds, func(r times) time.Duration { return r.All })/float64(ops*j.Threads))
	rows := make([]Row, 1, 1+j.Threads)
	for i := range j.Threads {
		r := newRow(j, t, size, i, median(rounds, func(r times) time.Duration { return r.Each[i] })/float64(ops))
		if i == 0 || r.Rate < all.Slowest {
			all.Slowest = r.Rate
		}
		all.Fastest = max(r.Rate, all.Fastest)
		r.Slowest, r.Fastest = r.Rate, r.Rate
		rows = append(rows, r)
	}
	rows[0] = all
	return rows
}

func newRow(j job, t Test, size, thread int, ns float64) Row {
	rate := 1e9 / ns
	return Row{Test: t.Name, Size: size, Mode: j.Mode, Threads: j.Threads, Thread: thread, NS: ns, Rate: rate, MiB: rate * float64(size) / (1 << 20)}
}

// median returns the median of the values that of returns, in nanoseconds and at least one.
func median(rounds []times, of func(times) time.Duration) float64 {
	list := make([]float64, len(rounds))
	for i, r := range rounds {
		list[i] = float64(max(of(r), 1))
	}
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
