package endpoints

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Row is one category with one number of threads.
type Row struct {
	Ranks    int               `json:"ranks,omitempty"` // of a node, that have as many threads each; 0: not said
	Threads  int               `json:"threads"`
	Category endpoint.Category `json:"category"`
	Rate     float64           `json:"msg_per_s"`
	// Relative is the rate divided by that of MPI-everywhere with as many threads;
	// 0 if that was not measured.
	Relative float64 `json:"relative"`
	// Gets and Puts are what an application does in the time that its threads spend on
	// them, and what that is relative to MPI-everywhere; 0 where they are not told apart.
	Gets         float64 `json:"gets_per_s,omitempty"`
	GetsRelative float64 `json:"gets_relative,omitempty"`
	Puts         float64 `json:"puts_per_s,omitempty"`
	PutsRelative float64 `json:"puts_relative,omitempty"`
	// Spread and PutsSpread are those of msgrate.Figure.
	Spread     float64 `json:"spread,omitempty"`
	PutsSpread float64 `json:"puts_spread,omitempty"`
	// CPU is what the process used for a message; 0 where it is not taken.
	CPU      float64 `json:"cpu_ns,omitempty"`
	Contexts int     `json:"contexts"`
	TDs      int     `json:"tds"`
	QPs      int     `json:"qps"`
	CQs      int     `json:"cqs"`
	UARPages int     `json:"uar_pages"`
	UUARs    int     `json:"uuars"`
	// Share is the micro-UARs divided by those of MPI-everywhere, as Relative.
	Share float64 `json:"uuars_relative"`
	// Wasted micro-UARs are those that no thread rings.
	Wasted int `json:"uuars_wasted"`
	// Memory of all objects in bytes, with what a device in software keeps of them, and
	// without the UAR pages, which lie in the NIC.
	Memory int64 `json:"memory"`
	// Of it: contexts, QPs, CQs.
	ContextMemory int64 `json:"memory_contexts"`
	QPMemory      int64 `json:"memory_qps"`
	CQMemory      int64 `json:"memory_cqs"`
	// Rounds are those that the figures are medians of; 0 if nothing was measured.
	Rounds int `json:"rounds,omitempty"`
}

// Study is what to compare.
type Study struct {
	Base       msgrate.Config // messages, size, depth, postlist, unsignaled, inline
	Queues     mlx5.Config
	Categories []endpoint.Category
	Threads    []int
	Ranks      int // for Row.Ranks; who measures knows
	CQ         int // threads that share a CQ, where they do not share more anyway
	Rounds     int
}

// Check says what is wrong with the numbers of threads.
func (s *Study) Check() error {
	for _, n := range s.Threads {
		if n < 1 {
			return fmt.Errorf("%d threads: want one or more", n)
		}
	}
	if s.CQ < 0 {
		return fmt.Errorf("%d threads share a completion queue", s.CQ)
	}
	return nil
}

// Cases lists the rows without their figures, and how to measure them.
func (s *Study) Cases() (rows []Row, cases []msgrate.Case) {
	for _, n := range s.Threads {
		for _, c := range s.Categories {
			cfg := s.Base
			cfg.Threads, cfg.Plan = n, plan(c, n, s.CQ)
			cfg.Buf, cfg.MR = 1, 1
			cfg.Atomics = c == endpoint.MPIThreads // whatever their number is
			rows = append(rows, Row{Ranks: s.Ranks, Threads: n, Category: c})
			cases = append(cases, msgrate.Case{Label: s.label(c, n), Config: cfg, Queues: s.Queues})
		}
	}
	return rows, cases
}

func (s *Study) label(c endpoint.Category, n int) string {
	if s.Ranks > 0 {
		return fmt.Sprintf("%v, %d.%d", c, s.Ranks, n)
	}
	return fmt.Sprintf("%v, %d threads", c, n)
}

// plan is the category for n threads with k of them on a CQ, where a context has as
// many.
func plan(c endpoint.Category, n, k int) endpoint.Plan {
	p := c.Plan(n)
	if p.Context%max(k, 1) == 0 {
		p = p.WithCQ(k)
	}
	return p
}

// Run measures all rows. step is told of each measurement; nil is allowed. With an error come the rows
// that were measured: see msgrate.MeasureAll.
func (s *Study) Run(ctx context.Context, m msgrate.Measurer, step func(label string)) ([]Row, error) {
	rows, cases := s.Cases()
	figures, err := msgrate.MeasureAll(ctx, m, cases, s.Rounds, step)
	for i := range rows {
		rows[i].Rounds = figures[i].Rounds
		rows[i].Rate, rows[i].CPU = figures[i].Rate, figures[i].CPU
		rows[i].Gets, rows[i].Puts = figures[i].Gets, figures[i].Puts
		rows[i].Spread, rows[i].PutsSpread = figures[i].Spread, figures[i].PutsSpread
		rows[i].count(figures[i].Resources)
	}
	rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Rounds == 0 })
	relate(rows)
	return rows, err
}

// Resources counts what the categories take on dev, without measuring: the columns of
// Run without rates.
func (s *Study) Resources(dev *verbs.Device) ([]Row, error) {
	rows, cases := s.Cases()
	for i := range rows {
		cfg := endpoint.Config{Plan: cases[i].Config.Plan}
		set, err := endpoint.Open(dev, rows[i].Threads, cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cases[i].Label, err)
		}
		r, _ := set.Resources()
		if err := set.Close(); err != nil {
			return nil, err
		}
		rows[i].count(r)
	}
	relate(rows)
	return rows, nil
}

func (r *Row) count(res verbs.Resources) {
	r.Contexts, r.TDs, r.QPs, r.CQs = res.Contexts, res.TDs, res.QPs, res.CQs
	r.UARPages, r.UUARs, r.Wasted = res.UARPages, res.UUARs, res.UUARsWasted
	r.Memory = res.Bytes.Total() - res.Bytes.UARs
	r.ContextMemory, r.QPMemory, r.CQMemory = res.Bytes.Contexts, res.Bytes.QPs, res.Bytes.CQs
}

// relate sets what rows are relative to MPI-everywhere.
func relate(rows []Row) {
	for i := range rows {
		r := &rows[i]
		b := slices.IndexFunc(rows, func(o Row) bool {
			return o.Threads == r.Threads && o.Category == endpoint.MPIEverywhere
		})
		if b < 0 {
			continue
		}
		r.Relative = ratio(r.Rate, rows[b].Rate)
		r.GetsRelative, r.PutsRelative = ratio(r.Gets, rows[b].Gets), ratio(r.Puts, rows[b].Puts)
		r.Share = ratio(float64(r.UUARs), float64(rows[b].UUARs))
	}
}

// ratio is 0 if there is nothing to compare with.
func ratio(v, base float64) float64 {
	if base <= 0 {
		return 0
	}
	return v / base
}

// ObjectSizes is the memory of one object of each kind, in bytes: the QP has the
// depth of the study's benchmark, 64, and the CQ is as deep.
func ObjectSizes(dev *verbs.Device) (_ verbs.ResourceBytes, err error) {
	set, err := endpoint.Open(dev, 1, endpoint.Config{Plan: endpoint.Dynamic.Plan(1)})
	if err != nil {
		return verbs.ResourceBytes{}, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	mr, err := set.Endpoints[0].PD.RegMR(make([]byte, 1), 0)
	if err != nil {
		return verbs.ResourceBytes{}, err
	}
	r, _ := set.Resources()
	if err := mr.Close(); err != nil {
		return verbs.ResourceBytes{}, err
	}
	r.Bytes.UARs /= int64(max(r.UARPages, 1))
	return r.Bytes, nil
}
