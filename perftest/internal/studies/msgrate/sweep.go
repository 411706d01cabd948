package msgrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/perftest/internal/measure/stat"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Case is a configuration to measure.
type Case struct {
	Label  string // label for the progress
	Config Config
	Queues mlx5.Config
}

// Figure is the result of a case: the medians over rounds.
type Figure struct {
	Rounds     int     // number of measured rounds; if 0, all other fields are invalid
	Rate       float64 // messages of all threads per second
	CPU        float64 // CPU time of the process per message, in ns; 0 in virtual time
	Gets, Puts float64 // of Rates
	// Spread and PutsSpread are the differences between the slowest and the fastest round, relative to Rate and to
	// Puts; 0 with one round.
	Spread, PutsSpread float64
	Resources          verbs.Resources
	Counts             Counts // of the last round
}

// MeasureAll measures cases in turns, for a number of rounds, so that a change of the machine's speed affects all of
// them. step is called after each measurement; it may be nil. If one fails, the figures are those of the complete
// rounds; in the first round, those of the measured cases. The failed case has none, unless ctx has ended it.
func MeasureAll(ctx context.Context, m Measurer, cases []Case, rounds int, step func(label string)) ([]Figure, error) {
	measured := make([][]Outcome, len(cases))
	var err error
	whole := 0
	for ; whole < max(rounds, 1); whole++ {
		if err = measureRound(ctx, m, cases, measured, step); err != nil {
			break
		}
	}
	figures := make([]Figure, len(cases))
	for i, rounds := range measured {
		figures[i] = newFigure(rounds[:min(len(rounds), max(whole, 1))])
	}
	return figures, err
}

// measureRound measures each case once.
func measureRound(ctx context.Context, m Measurer, cases []Case, measured [][]Outcome, step func(label string)) error {
	for i, c := range cases {
		o, err := m.Measure(ctx, c.Queues, c.Config)
		if err != nil {
			if ctx.Err() == nil || errors.Is(err, ErrData) {
				measured[i] = nil
			}
			return fmt.Errorf("%s: %w", c.Label, err)
		}
		measured[i] = append(measured[i], o)
		if step != nil {
			step(c.Label)
		}
	}
	return nil
}

// newFigure summarizes the rounds of a case.
func newFigure(rounds []Outcome) (f Figure) {
	if len(rounds) == 0 {
		return f
	}
	last := &rounds[len(rounds)-1]
	return Figure{Rounds: len(rounds), Resources: last.Resources, Counts: last.Counts,
		Rate: stat.Median(each(rounds, total)), Spread: spread(each(rounds, total)),
		CPU:  stat.Median(each(rounds, func(r Rates) float64 { return float64(r.CPU) / max(float64(r.Messages), 1) })),
		Gets: stat.Median(each(rounds, func(r Rates) float64 { return r.Gets })),
		Puts: stat.Median(each(rounds, puts)), PutsSpread: spread(each(rounds, puts))}
}

func total(r Rates) float64 { return r.Total }
func puts(r Rates) float64  { return r.Puts }

// each returns a value of each round.
func each(rounds []Outcome, figure func(Rates) float64) (v []float64) {
	for i := range rounds {
		v = append(v, figure(rounds[i].Rates))
	}
	return v
}

// spread returns the difference of the extremes, relative to the median; 0 if that is 0.
func spread(v []float64) float64 {
	if m := stat.Median(v); m > 0 {
		return (slices.Max(v) - slices.Min(v)) / m
	}
	return 0
}

// Sweep is a set of cases: each type of sharing, with each degree and each set of features.
type Sweep struct {
	Base     Config // threads, messages, size, depth, postlist, unsignaled
	Queues   mlx5.Config
	Shares   []Share
	Ways     []int
	Features []Features
	Rounds   int
}

// Point is a row of a sweep's results.
type Point struct {
	Share    Share   `json:"share"`
	Features string  `json:"features"`
	Ways     int     `json:"ways"`
	Threads  int     `json:"threads"`
	Rate     float64 `json:"msg_per_s"`
	// Relative is the rate divided by that of the smallest degree with the same type and features.
	Relative float64 `json:"relative"`
	// Spread is that of Figure.
	Spread float64 `json:"spread,omitempty"`
	// CPU is the CPU time of the process per message; 0 in virtual time.
	CPU      float64 `json:"cpu_ns,omitempty"`
	Contexts int     `json:"contexts"`
	QPs      int     `json:"qps"`
	CQs      int     `json:"cqs"`
	UARPages int     `json:"uar_pages"`
	UUARs    int     `json:"uuars"`
	Used     int     `json:"uuars_used"`
	Memory   int64   `json:"memory"` // of all objects, without UAR pages
	// Doorbells, BlueFlames and CQEs of the last round, per message.
	Doorbells  float64 `json:"doorbells_per_msg"`
	BlueFlames float64 `json:"blueflames_per_msg"`
	CQEs       float64 `json:"cqes_per_msg"`
	// Reads is the number of memory reads by the device per message; 0 in real time.
	Reads float64 `json:"dma_reads_per_msg,omitempty"`
	// Rounds is the number of rounds of which the values are medians.
	Rounds int `json:"rounds"`
}

// Cases lists the points without their values, and the configurations to measure. For ShareNone the degree is the
// number of threads.
func (s *Sweep) Cases() (points []Point, cases []Case, err error) {
	for _, share := range s.Shares {
		for _, f := range s.Features {
			for _, x := range s.Ways {
				p := Point{Share: share, Features: f.String(), Ways: x, Threads: max(s.Base.Threads, 1)}
				cfg, queues := f.Apply(s.Base, s.Queues)
				if share == ShareNone {
					cfg.Threads, p.Threads, p.Ways = x, x, 1
				}
				if cfg, err = share.Apply(cfg, p.Ways); err != nil {
					return nil, nil, err
				}
				if err = cfg.Check(); err != nil {
					return nil, nil, err
				}
				points = append(points, p)
				cases = append(cases, Case{fmt.Sprintf("%s %d-way, %s", share, x, f), cfg, queues})
			}
		}
	}
	return points, cases, nil
}

// Run measures all points. After an error it returns the measured ones: see MeasureAll.
func (s *Sweep) Run(ctx context.Context, m Measurer, step func(label string)) ([]Point, error) {
	points, cases, err := s.Cases()
	if err != nil {
		return nil, err
	}
	figures, err := MeasureAll(ctx, m, cases, s.Rounds, step)
	for i := range points {
		points[i].fill(figures[i])
	}
	points = slices.DeleteFunc(points, func(p Point) bool { return p.Rounds == 0 })
	for i := range points {
		points[i].Relative = points[i].Rate / points[base(points, i)].Rate
	}
	return points, err
}

// base returns the first point with the type and features of point i.
func base(points []Point, i int) int {
	return slices.IndexFunc(points, func(p Point) bool {
		return p.Share == points[i].Share && p.Features == points[i].Features
	})
}

func (p *Point) fill(f Figure) {
	r := f.Resources
	p.Rounds, p.CPU, p.Spread = f.Rounds, f.CPU, f.Spread
	p.Rate, p.Contexts, p.QPs, p.CQs = f.Rate, r.Contexts, r.QPs, r.CQs
	p.UARPages, p.UUARs, p.Used, p.Memory = r.UARPages, r.UUARs, r.UUARsUsed, r.Bytes.Total()-r.Bytes.UARs
	n := max(float64(f.Counts.WQEs), 1)
	p.Doorbells, p.BlueFlames, p.CQEs = float64(f.Counts.Doorbells)/n, float64(f.Counts.BlueFlames)/n, float64(f.Counts.CQEs)/n
	p.Reads = float64(f.Counts.Reads) / n
}
