package sp

import (
	"context"
	"fmt"
	"time"
)

// Costs are the times of a unit of each type of work, in nanoseconds.
type Costs [Works]float64

// ClassA contains the costs of class A: the output of "perftest sp --class A --ranks 4 --costs" on an AMD EPYC at 2.6
// GHz with Go 1.26. Models use them to have the same results everywhere.
var ClassA = Costs{
	Derive:         4.7,
	Residual:       44,
	Characteristic: 8.4,
	Assemble:       11.5,
	Eliminate:      9.0,
	Substitute:     7.1,
	Rotate:         6.5,
	Update:         2.3,
	Pack:           0.83,
	Unpack:         1.1,
}

// Scaled returns c for a machine that takes factor times as long for everything.
func (c Costs) Scaled(factor float64) Costs {
	for w := range c {
		c[w] *= factor
	}
	return c
}

// Time returns the time of a Compute event.
func (c *Costs) Time(e Event) time.Duration {
	return time.Duration(c[e.Work] * float64(e.Amount))
}

// Measure measures costs: the minimum over steps of one rank of several, which runs alone on this CPU. It receives its
// own messages in place of those of its neighbors, so that it computes with values of the problem. All cells must have
// the same size. It returns the cause of ctx when ctx ends, and calls did after each of steps + 1 steps.
func Measure(ctx context.Context, class Class, ranks, steps int, did func()) (best Costs, err error) {
	l, err := newLayout(class.Grid, ranks, 0)
	if err != nil {
		return best, err
	}
	if class.Grid%l.edge != 0 {
		return best, fmt.Errorf("%d ranks cut a grid of %d points into cells of different sizes", ranks, class.Grid)
	}
	m := &meter{Comm: &mirror{ranks: ranks}, worker: newField(l, class.Dt), layout: l}
	d, err := newDriver(l, m, m)
	if err != nil {
		return best, err
	}
	for i := range steps + 1 { // the first step touches memory for the first time
		m.Result = Result{}
		if err := d.step(); err != nil {
			return best, err
		}
		if err := context.Cause(ctx); err != nil {
			return best, err
		}
		did()
		switch c := m.costs(); {
		case i == 1:
			best = c
		case i > 1:
			best = best.least(c)
		}
	}
	return best, nil
}

// costs returns the costs of a measurement.
func (r *Result) costs() (c Costs) {
	for w, spent := range r.Spent {
		c[w] = float64(spent) / float64(max(r.Amount[w], 1))
	}
	return c
}

// least returns the smaller value of each cost.
func (c Costs) least(d Costs) Costs {
	for w := range c {
		c[w] = min(c[w], d[w])
	}
	return c
}

// mirror is a comm of one rank without the others: a message sent along an axis is received from the other side.
type mirror struct {
	ranks int
	sent  [Tags][]byte
	wait  []arrival
}

// arrival is an expected message of mirror's rank.
type arrival struct {
	tag int
	buf []byte
}

func (m *mirror) Rank() int { return 0 }
func (m *mirror) Size() int { return m.ranks }

func (m *mirror) Isend(_, tag int, b []byte) error {
	m.sent[tag] = b
	return nil
}

func (m *mirror) Irecv(_, tag int, b []byte) error {
	m.wait = append(m.wait, arrival{tag, b})
	return nil
}

func (m *mirror) WaitAll() error {
	for _, a := range m.wait {
		copy(a.buf, m.sent[a.tag])
	}
	m.wait = m.wait[:0]
	return nil
}

func (m *mirror) Sum([]float64) error { return nil }
func (m *mirror) Barrier() error      { return nil }
