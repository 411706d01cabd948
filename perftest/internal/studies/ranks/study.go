package ranks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Study selects the measurements.
type Study struct {
	Tests      []Test
	Sizes      []int // bytes: of a message, or of a rank's part
	Iterations int
	Warmup     int
}

// ErrStudy is the error of an invalid study.
var ErrStudy = errors.New("cannot be measured")

// leastWarmup is the number of rounds after which a way has connected everything that it uses.
const leastWarmup = 2

// Check returns an error if the study is invalid for a number of ranks and of ways.
func (s *Study) Check(ranks, ways int) error {
	for _, t := range s.Tests {
		if ranks < t.least {
			return fmt.Errorf("%w: %s needs %d ranks", ErrStudy, t.Name, t.least)
		}
	}
	switch {
	case len(s.Tests) == 0 || len(s.Sizes) == 0:
		return fmt.Errorf("%w: no tests, or no sizes", ErrStudy)
	case s.Iterations < 1 || s.Warmup < 0:
		return fmt.Errorf("%w: %d rounds after %d to warm up: want 1 or more after 0 or more", ErrStudy, s.Iterations, s.Warmup)
	case ways > 1 && s.Warmup < leastWarmup:
		return fmt.Errorf("%w: several protocols need %d rounds to warm up", ErrStudy, leastWarmup)
	}
	return nil
}

// Cases returns the number of rows.
func (s *Study) Cases() (n int) {
	for _, t := range s.Tests {
		n += len(s.sizes(t))
	}
	return n
}

// sizes returns the sizes of a test.
func (s *Study) sizes(t Test) []int {
	if !t.sized {
		return []int{0}
	}
	return s.Sizes
}

// Way is a protocol with the ranks that it connects.
type Way struct {
	Protocol string
	Comm     *ucpgroup.Comm
}

// Row is one test at one size.
type Row struct {
	Test     string `json:"test"`
	Size     int    `json:"size"`
	Protocol string `json:"protocol"`
	Ranks    int    `json:"ranks"`
	// Nanoseconds of one round, or of one hop of it: the mean of the rounds of a rank; of these the mean, minimum and
	// maximum over the timed ranks.
	MeanNS  float64 `json:"mean_ns"`
	LeastNS float64 `json:"least_ns"`
	MostNS  float64 `json:"most_ns"`
	// BestNS is the shortest round of any rank. On a busy machine it is the most significant value.
	BestNS float64 `json:"best_ns"`
}

// Run runs the study as one of the ranks that all ways connect. All of these ranks must call it. The rows are equal on
// all. step, which may be nil, is called before the rows of a test and size.
func (s *Study) Run(ctx context.Context, ways []Way, step func(test string, size int)) (rows []Row, err error) {
	for _, t := range s.Tests {
		for _, size := range s.sizes(t) {
			if step != nil {
				step(t.Name, size)
			}
			got, err := s.measure(ctx, ways, t, size)
			if err != nil {
				return rows, fmt.Errorf("%s of %d bytes: %w", t.Name, size, err)
			}
			rows = append(rows, got...)
		}
	}
	return rows, nil
}

// Leave closes the groups of a rank after a study that returned err. After success, and after wrong data, which all
// ranks know, it closes them together with the other ranks. After any other error it notifies the others and does not
// wait for them.
func Leave(ctx context.Context, groups []*ucpgroup.Group, err error) error {
	together := err == nil || errors.Is(err, ErrData)
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

// timed is a test by one of the ways.
type timed struct {
	Way
	round round
	check func() error
	spent time.Duration // by all rounds
	best  time.Duration // by the quickest
}

// turn is the number of consecutive rounds of a way: enough that its data is in the caches again.
const turn = 16

// measure returns a row for each way. After the warm-up the ways take turns, so that a change of the machine's speed
// affects all. A rank makes progress on one way only, so lanes must not be connecting when it continues with the next
// way: two consecutive rounds ensure that.
func (s *Study) measure(ctx context.Context, ways []Way, t Test, size int) (rows []Row, err error) {
	turns := make([]timed, len(ways))
	for i, w := range ways {
		turns[i] = timed{Way: w}
		turns[i].round, turns[i].check = t.prepare(w.Comm, size)
	}
	for i := range turns {
		for range s.Warmup {
			if err := turns[i].run(ctx, false); err != nil {
				return nil, err
			}
		}
	}
	for n := 0; n < s.Iterations; n += turn {
		for i := range turns {
			for range min(turn, s.Iterations-n) {
				if err := turns[i].run(ctx, true); err != nil {
					return nil, err
				}
			}
		}
	}
	for i := range turns {
		x := &turns[i]
		if err := agree(ctx, x.Comm, x.check()); err != nil {
			return nil, err
		}
		row := Row{Test: t.Name, Size: size, Protocol: x.Protocol, Ranks: x.Comm.Size()}
		hops := float64(t.messages(row.Ranks))
		mean, best := float64(x.spent)/float64(s.Iterations)/hops, float64(x.best)/hops
		if err := row.collect(ctx, x.Comm, mean, best, t.ranks == 0 || x.Comm.Rank() < t.ranks); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// messages returns the number of consecutive messages of a round among n ranks; the time of one is reported.
func (t *Test) messages(n int) int {
	if t.hops == nil {
		return 1
	}
	return t.hops(n)
}

// run runs a round after a barrier, which is not timed.
func (x *timed) run(ctx context.Context, counts bool) error {
	if err := x.Comm.Barrier(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := x.round(ctx); err != nil {
		return err
	}
	if took := time.Since(start); counts {
		x.spent += took
		if x.best == 0 || took < x.best {
			x.best = took
		}
	}
	return nil
}

// agree returns an error on all ranks if one rank has one.
func agree(ctx context.Context, c *ucpgroup.Comm, err error) error {
	bad := []int64{0}
	if err != nil {
		bad[0] = 1
	}
	if errSum := ucpgroup.Allreduce(ctx, c, nil, bad, ucpgroup.Sum[int64]); errSum != nil {
		return errSum
	}
	switch {
	case err != nil:
		return err
	case bad[0] > 0:
		return fmt.Errorf("%w on %d other ranks", ErrData, bad[0])
	}
	return nil
}

// collect computes the figures from those of all ranks.
func (r *Row) collect(ctx context.Context, c *ucpgroup.Comm, mean, best float64, timed bool) error {
	sum, most, least := []float64{mean, 1}, []float64{mean}, []float64{mean, best}
	if !timed {
		sum, most, least = []float64{0, 0}, []float64{0}, []float64{math.Inf(1), math.Inf(1)}
	}
	if err := ucpgroup.Allreduce(ctx, c, nil, sum, ucpgroup.Sum[float64]); err != nil {
		return err
	}
	if err := ucpgroup.Allreduce(ctx, c, nil, most, ucpgroup.Max[float64]); err != nil {
		return err
	}
	if err := ucpgroup.Allreduce(ctx, c, nil, least, ucpgroup.Min[float64]); err != nil {
		return err
	}
	r.MeanNS, r.MostNS, r.LeastNS, r.BestNS = sum[0]/sum[1], most[0], least[0], least[1]
	return nil
}
