package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/perftest/internal/measure/stat"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Kernel is a rank's part of a computation. All ranks must call the methods in the same order.
type Kernel interface {
	// Step computes an iteration.
	Step() error
	// Result returns the result of the iterations so far; it is equal on all ranks.
	Result() (Result, error)
}

// Result is the result of a kernel.
type Result struct {
	// State is a hash of all bits of it.
	State uint64 `json:"state"`
	// Values are numbers of the physics, or of the method.
	Values []Value `json:"values"`
}

// Value is a number of a result.
type Value struct {
	Name   string // in CSV
	Title  string // in a table
	Number float64
}

// Maker creates the kernel of a rank.
type Maker func(c *Comm) (Kernel, error)

// Study times a kernel.
type Study struct {
	New        Maker
	Iterations int
	Warmup     int
	Turn       int  // consecutive iterations of one transport
	Check      bool // also computes everything on one rank
}

var (
	// ErrStudy is the error of an invalid study.
	ErrStudy = errors.New("cannot be measured")
	// ErrResult is the error if results differ.
	ErrResult = errors.New("wrong result")
)

// leastWarmup is the number of iterations after which all connections of a transport are set up.
const leastWarmup = 2

// CheckFlags returns an error for an invalid study.
func (s *Study) CheckFlags() error {
	switch {
	case s.Iterations < 1 || s.Warmup < leastWarmup:
		return fmt.Errorf("%w: %d iterations after %d to warm up: want 1 or more after %d or more", ErrStudy, s.Iterations, s.Warmup, leastWarmup)
	case s.Turn < 1:
		return fmt.Errorf("%w: turns of %d iterations: want 1 or more", ErrStudy, s.Turn)
	}
	return nil
}

// Steps returns the number of calls of step by Run on rank 0.
func (s *Study) Steps(ways int) int {
	n := ways * (s.Warmup + s.Iterations)
	if s.Check {
		n += s.Warmup + s.Iterations
	}
	return n
}

// Way is a transport, and the ranks that it connects.
type Way struct {
	Transport string
	Comm      *ucpgroup.Comm
}

// Row is a transport.
type Row struct {
	Transport  string `json:"transport"`
	Ranks      int    `json:"ranks"`
	Iterations int    `json:"iterations"`
	// Nanoseconds per iteration: the mean of all, and the median and minimum of turns.
	MeanNS   float64 `json:"mean_ns"`
	MedianNS float64 `json:"median_ns"`
	BestNS   float64 `json:"best_ns"`
	// Change is the relative difference of an iteration to the first transport: the median of the differences of
	// consecutive turns, with the bounds of its 95 % interval. The bounds are 0 with fewer than six turns.
	Change     float64 `json:"change"`
	ChangeLow  float64 `json:"change_low"`
	ChangeHigh float64 `json:"change_high"`
	// Waiting is the share of time in which a rank waits for messages and sums, as mean over all ranks.
	Waiting float64 `json:"waiting"`
	// Messages, Bytes and Sums are those of a rank in an iteration, as mean over all ranks.
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`
	Sums     float64 `json:"sums"`
	// Checked: a single rank has computed the same result.
	Checked bool   `json:"checked"`
	Result  Result `json:"result"`
}

// timed is a kernel over one of the ways.
type timed struct {
	way    Way
	comm   *Comm
	kernel Kernel
	turns  []float64 // nanoseconds per iteration
	spent  time.Duration
	count  Count
}

// Run runs the study as one of the ranks that all ways connect. All of these ranks must call it. The rows are equal on
// all; after an error there are none. step, which may be nil, is called after each iteration with its transport, or
// "one rank". An error of different results wraps ErrResult.
func (s *Study) Run(ctx context.Context, ways []Way, step func(transport string)) (rows []Row, err error) {
	if step == nil {
		step = func(string) {}
	}
	list := make([]*timed, len(ways))
	for i, w := range ways {
		t := &timed{way: w, comm: NewComm(ctx, w.Comm)}
		if t.kernel, err = s.New(t.comm); err != nil {
			return nil, err
		}
		if _, err := t.run(s.Warmup, step); err != nil {
			return nil, err
		}
		list[i] = t
	}
	if err := s.takeTurns(ctx, list, step); err != nil {
		return nil, err
	}
	for _, t := range list {
		row, err := t.row(s.Iterations, list[0])
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if err := s.verify(ctx, ways[0].Comm, rows, step); err != nil {
		return nil, err
	}
	return rows, nil
}

// takeTurns runs the timed iterations. Another transport is first each time, so that none always follows the same one.
func (s *Study) takeTurns(ctx context.Context, list []*timed, step func(string)) error {
	for done, turn := 0, 0; done < s.Iterations; turn++ {
		n := min(s.Turn, s.Iterations-done)
		for i := range list {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			t := list[(i+turn)%len(list)]
			before := t.comm.count
			took, err := t.run(n, step)
			if err != nil {
				return err
			}
			t.turns = append(t.turns, float64(took)/float64(n))
			t.spent += took
			t.count = t.comm.count.minus(before).plus(t.count)
		}
		done += n
	}
	return nil
}

// run runs n iterations between barriers.
func (t *timed) run(n int, step func(string)) (time.Duration, error) {
	if err := t.comm.barrier(); err != nil {
		return 0, err
	}
	begin := time.Now()
	for range n {
		if err := t.kernel.Step(); err != nil {
			return 0, fmt.Errorf("%s: %w", t.way.Transport, err)
		}
		step(t.way.Transport)
	}
	err := t.comm.barrier()
	return time.Since(begin), err
}

// row returns the result of all ranks. Turns are those of this rank until they are averaged.
func (t *timed) row(iterations int, first *timed) (r Row, err error) {
	if t.turns, err = t.average(t.turns); err != nil {
		return r, err
	}
	n, k := float64(t.comm.Size()), float64(iterations)
	all, err := t.average([]float64{float64(t.spent), float64(t.count.Waiting), float64(t.count.Messages), float64(t.count.Bytes), float64(t.count.Sums)})
	if err != nil {
		return r, err
	}
	r = Row{Transport: t.way.Transport, Ranks: int(n), Iterations: iterations, MeanNS: all[0] / k, MedianNS: stat.Median(t.turns), BestNS: least(t.turns),
		Waiting: all[1] / all[0], Messages: all[2] / k, Bytes: all[3] / k, Sums: all[4] / k}
	if base := stat.Median(first.turns); base > 0 {
		d := stat.Paired(t.turns, first.turns)
		r.Change, r.ChangeLow, r.ChangeHigh = d.Median/base, d.Lo/base, d.Hi/base
	}
	r.Result, err = t.kernel.Result()
	return r, err
}

// average replaces each element by its mean over all ranks.
func (t *timed) average(v []float64) ([]float64, error) {
	sums := make([]Sum, len(v))
	list := make([]*Sum, len(v))
	for i := range v {
		sums[i].Add(v[i])
		list[i] = &sums[i]
	}
	if err := t.comm.Sum(list...); err != nil {
		return nil, err
	}
	mean := make([]float64, len(v))
	for i := range v {
		mean[i] = sums[i].Value() / float64(t.comm.Size())
	}
	return mean, nil
}

func least(v []float64) float64 {
	best := v[0]
	for _, x := range v[1:] {
		best = min(best, x)
	}
	return best
}

// verify compares the results with each other and, on rank 0, with that of a single rank.
func (s *Study) verify(ctx context.Context, c *ucpgroup.Comm, rows []Row, step func(string)) error {
	err := sameResults(rows)
	if err == nil && s.Check && c.Rank() == 0 {
		err = s.checkAlone(ctx, rows[0].Result, step)
	}
	bad := []int64{0}
	if err != nil {
		bad[0] = 1
	}
	if errSum := ucpgroup.Allreduce(ctx, c, nil, bad, ucpgroup.Max[int64]); errSum != nil {
		return errors.Join(err, errSum)
	}
	switch {
	case err != nil:
		return err
	case bad[0] > 0:
		return fmt.Errorf("%w on another rank", ErrResult)
	}
	for i := range rows {
		rows[i].Checked = s.Check
	}
	return nil
}

func sameResults(rows []Row) error {
	for _, r := range rows[1:] {
		if err := same(r.Transport, r.Result, rows[0].Transport, rows[0].Result); err != nil {
			return err
		}
	}
	return nil
}

func same(name string, got Result, other string, want Result) error {
	if got.State != want.State {
		return fmt.Errorf("%w: state %016x by %s, %016x by %s", ErrResult, got.State, name, want.State, other)
	}
	for i, v := range got.Values {
		if w := want.Values[i].Number; v.Number != w {
			return fmt.Errorf("%w: %s is %v by %s, %v by %s", ErrResult, v.Name, v.Number, name, w, other)
		}
	}
	return nil
}

// checkAlone computes everything on this rank.
func (s *Study) checkAlone(ctx context.Context, got Result, step func(string)) error {
	k, err := s.New(Alone(ctx))
	if err != nil {
		return err
	}
	for range s.Warmup + s.Iterations {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := k.Step(); err != nil {
			return err
		}
		step("one rank")
	}
	want, err := k.Result()
	if err != nil {
		return err
	}
	return same("all ranks", got, "one rank", want)
}

// Leave closes the groups of a rank after a study that returned err. After success and after a wrong result, which all
// ranks know, it closes them together with the other ranks. After any other error it notifies the others and does not
// wait for them.
func Leave(ctx context.Context, groups []*ucpgroup.Group, err error) error {
	together := err == nil || errors.Is(err, ErrResult)
	var errs error
	for _, g := range groups {
		if !together {
			g.Abort(err)
		}
		if e := g.Close(ctx); together { // otherwise its reason is known
			errs = errors.Join(errs, e)
		}
	}
	return errs
}
