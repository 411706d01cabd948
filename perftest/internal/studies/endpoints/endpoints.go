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
	Ranks    int               `json:"ranks,omitempty"` // ranks of a node, each with as many threads; 0: unknown
	Threads  int               `json:"threads"`
	Category endpoint.Category `json:"category"`
	Rate     float64           `json:"msg_per_s"`
	// Relative is the rate divided by that of MPI-everywhere with as many threads; 0 if that was not measured.
	Relative float64 `json:"relative"`
	// Gets and Puts are the rates of an application in the time that its threads spend on each, and their ratios to
	// MPI-everywhere; 0 if they are not separate.
	Gets         float64 `json:"gets_per_s,omitempty"`
	GetsRelative float64 `json:"gets_relative,omitempty"`
	Puts         float64 `json:"puts_per_s,omitempty"`
	PutsRelative float64 `json:"puts_relative,omitempty"`
	// Spread and PutsSpread are those of msgrate.Figure.
	Spread     float64 `json:"spread,omitempty"`
	PutsSpread float64 `json:"puts_spread,omitempty"`
	// CPU is the CPU time of the process per message; 0 if not measured.
	CPU      float64 `json:"cpu_ns,omitempty"`
	Contexts int     `json:"contexts"`
	TDs      int     `json:"tds"`
	QPs      int     `json:"qps"`
	CQs      int     `json:"cqs"`
	UARPages int     `json:"uar_pages"`
	UUARs    int     `json:"uuars"`
	// Share is the micro-UARs divided by those of MPI-everywhere, as Relative.
	Share float64 `json:"uuars_relative"`
	// Wasted is the number of micro-UARs that no thread rings.
	Wasted int `json:"uuars_wasted"`
	// Memory is the memory of all objects in bytes, including that of a device in software, without the UAR pages,
	// which are in the NIC.
	Memory int64 `json:"memory"`
	// Parts of it: contexts, QPs, CQs.
	ContextMemory int64 `json:"memory_contexts"`
	QPMemory      int64 `json:"memory_qps"`
	CQMemory      int64 `json:"memory_cqs"`
	// Rounds is the number of rounds of which the values are medians; 0 if nothing was measured.
	Rounds int `json:"rounds,omitempty"`
}

// Study selects the comparisons.
type Study struct {
	Base       msgrate.Config // messages, size, depth, postlist, unsignaled, inline
	Queues     mlx5.Config
	Categories []endpoint.Category
	Threads    []int
	Ranks      int // for Row.Ranks; set by the caller
	CQ         int // threads that share a CQ, in categories that do not share more
	Rounds     int
}

// Check returns an error for invalid numbers of threads.
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

// Cases lists the rows without their values, and the configurations to measure.
func (s *Study) Cases() (rows []Row, cases []msgrate.Case) {
	for _, n := range s.Threads {
		for _, c := range s.Categories {
			cfg := s.Base
			cfg.Threads, cfg.Plan = n, plan(c, n, s.CQ)
			cfg.Buf, cfg.MR = 1, 1
			cfg.Atomics = c == endpoint.MPIThreads // independent of their number
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

// plan returns the category for n threads, k of them on each CQ, if a context has as many.
func plan(c endpoint.Category, n, k int) endpoint.Plan {
	p := c.Plan(n)
	if p.Context%max(k, 1) == 0 {
		p = p.WithCQ(k)
	}
	return p
}

// Run measures all rows. step is called after each measurement; it may be nil. After an error it also returns the
// measured rows: see msgrate.MeasureAll.
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

// Resources counts the resources of the categories on dev, without measuring: the columns of Run without rates.
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

// relate sets the ratios of rows to MPI-everywhere.
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

// ratio returns 0 if there is nothing to compare with.
func ratio(v, base float64) float64 {
	if base <= 0 {
		return 0
	}
	return v / base
}

// ObjectSizes returns the memory of one object of each type, in bytes. QP and CQ have the depth of the study's
// benchmark, 64.
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
