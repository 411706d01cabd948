package ranks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Study is what is measured.
type Study struct {
	Tests      []Test
	Sizes      []int // bytes: of a message, or of a rank's part
	Iterations int
	Warmup     int
}

// ErrStudy says that a study cannot be run.
var ErrStudy = errors.New("not a study")

// Check says what is wrong with the study for a number of ranks.
func (s *Study) Check(ranks int) error {
	for _, t := range s.Tests {
		if ranks < t.least {
			return fmt.Errorf("%w: %s needs %d ranks", ErrStudy, t.Name, t.least)
		}
	}
	switch {
	case len(s.Tests) == 0 || len(s.Sizes) == 0:
		return fmt.Errorf("%w: no tests, or no sizes", ErrStudy)
	case s.Iterations < 1 || s.Warmup < 0:
		return fmt.Errorf("%w: %d iterations after %d", ErrStudy, s.Iterations, s.Warmup)
	}
	return nil
}

// Cases is how many rows there will be.
func (s *Study) Cases() (n int) {
	for _, t := range s.Tests {
		n += len(s.sizes(t))
	}
	return n
}

// sizes are those of a test.
func (s *Study) sizes(t Test) []int {
	if !t.sized {
		return []int{0}
	}
	return s.Sizes
}

// Row is one test at one size.
type Row struct {
	Test  string `json:"test"`
	Size  int    `json:"size"`
	Ranks int    `json:"ranks"`
	// Nanoseconds of one round, or one hop of it: the mean of a rank's rounds, of which the mean,
	// the least and the most over the ranks that are timed.
	MeanNS  float64 `json:"mean_ns"`
	LeastNS float64 `json:"least_ns"`
	MostNS  float64 `json:"most_ns"`
}

// Run runs the study as one of the ranks of c, all of which call it. Rows are the same on each.
// step, which may be nil, is called before each row.
func (s *Study) Run(ctx context.Context, c *ucpgroup.Comm, step func(test string, size int)) (rows []Row, err error) {
	for _, t := range s.Tests {
		for _, size := range s.sizes(t) {
			if step != nil {
				step(t.Name, size)
			}
			row, err := s.measure(ctx, c, t, size)
			if err != nil {
				return rows, fmt.Errorf("%s of %d bytes: %w", t.Name, size, err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// measure is one row.
func (s *Study) measure(ctx context.Context, c *ucpgroup.Comm, t Test, size int) (Row, error) {
	row := Row{Test: t.Name, Size: size, Ranks: c.Size()}
	round, check := t.prepare(c, size)
	if _, err := repeat(ctx, c, round, s.Warmup); err != nil {
		return row, err
	}
	spent, err := repeat(ctx, c, round, s.Iterations)
	if err != nil {
		return row, err
	}
	if err := agree(ctx, c, check()); err != nil {
		return row, err
	}
	hops := 1
	if t.hops != nil {
		hops = t.hops(c.Size())
	}
	return row, row.collect(ctx, c, float64(spent.Nanoseconds())/float64(s.Iterations*hops), t.ranks == 0 || c.Rank() < t.ranks)
}

// repeat runs rounds, each behind a barrier that is not counted, and returns the time of all.
func repeat(ctx context.Context, c *ucpgroup.Comm, round round, n int) (spent time.Duration, err error) {
	for range n {
		if err := c.Barrier(ctx); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := round(ctx); err != nil {
			return 0, err
		}
		spent += time.Since(start)
	}
	return spent, nil
}

// agree has all ranks return an error if one has one.
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

// collect fills the figures from those of all ranks.
func (r *Row) collect(ctx context.Context, c *ucpgroup.Comm, mine float64, timed bool) error {
	count := 1.0
	if !timed {
		mine, count = 0, 0
	}
	most, least, sum := []float64{mine}, []float64{mine}, []float64{mine, count}
	if err := ucpgroup.Allreduce(ctx, c, nil, most, ucpgroup.Max[float64]); err != nil {
		return err
	}
	if !timed {
		least[0] = most[0]
	}
	if err := ucpgroup.Allreduce(ctx, c, nil, least, ucpgroup.Min[float64]); err != nil {
		return err
	}
	if err := ucpgroup.Allreduce(ctx, c, nil, sum, ucpgroup.Sum[float64]); err != nil {
		return err
	}
	r.MostNS, r.LeastNS, r.MeanNS = most[0], least[0], sum[0]/sum[1]
	return nil
}
