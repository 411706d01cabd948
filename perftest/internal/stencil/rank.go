package stencil

import (
	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/rclink"
	"github.com/gucx/gucx/perftest/internal/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// rank is a band of the grid with its threads.
type rank struct {
	set     *endpoint.Set
	grid    [2]band // by parity of the iteration
	threads []*thread
}

// openRank makes a rank of a grid.
func openRank(dev *verbs.Device, b *Bench, ends endpoint.Config, inline bool, all *barrier, undo *cleanup.Stack) (_ *rank, err error) {
	rows := b.Rows / (nodes * b.Ranks)
	k := &rank{grid: [2]band{newBand(rows, b.Cols), newBand(rows, b.Cols)}}
	if k.set, err = endpoint.Open(dev, b.Threads, ends); err != nil {
		return nil, err
	}
	undo.Add(k.set.Close)
	var credits []*steps.Credit
	width := b.Cols / b.Threads
	for t, e := range k.set.Endpoints {
		th := &thread{id: t, grid: &k.grid, lo: t * width, hi: (t + 1) * width,
			credit: &steps.Credit{}, inline: inline, all: all}
		th.poller.CQ = e.CQ
		if err := th.memory(e, undo); err != nil {
			return nil, err
		}
		credits = append(credits, th.credit)
		k.threads = append(k.threads, th)
	}
	for _, th := range k.threads {
		th.poller.Credits = credits
	}
	return k, nil
}

// memory is a buffer with halos by parity and side, and then what is sent.
func (t *thread) memory(e endpoint.Endpoint, undo *cleanup.Stack) error {
	n := (t.hi - t.lo) * element
	buf, err := e.Context.AllocBuffer((2*sides + sides) * n)
	if err != nil {
		return err
	}
	undo.Add(buf.Close)
	if t.mr, err = e.PD.RegMR(buf.Bytes(), rclink.AllAccess); err != nil {
		return err
	}
	undo.Add(t.mr.Close)
	for side := range sides {
		for parity := range 2 {
			t.halo[parity][side] = buf.Bytes()[haloAt(parity, side)*n:][:n]
		}
		t.sendAt[side] = (2*sides + side) * n
		t.send[side] = buf.Bytes()[t.sendAt[side]:][:n]
		t.rows[side] = make([]float64, t.hi-t.lo)
	}
	return nil
}

// haloAt is the place of a halo, in halos.
func haloAt(parity, side int) int { return parity*sides + side }

// join connects rank a with b, which is below it.
func join(a, b *rank) error {
	joined := map[*verbs.QP]bool{} // shared ones meet again
	for t := range a.threads {
		down, up := a.set.Endpoints[t].QPs[below], b.set.Endpoints[t].QPs[above]
		if !joined[down] {
			joined[down] = true
			if err := connect(down, up); err != nil {
				return err
			}
		}
		a.threads[t].beside[below] = b.threads[t].neighbor(down, above)
		b.threads[t].beside[above] = a.threads[t].neighbor(up, below)
	}
	return nil
}

// neighbor is how t is reached through qp, from its given side.
func (t *thread) neighbor(qp *verbs.QP, side int) neighbor {
	n := neighbor{qp: qp, rkey: t.mr.RKey()}
	for parity := range 2 {
		n.addr[parity] = t.mr.Addr() + uint64(haloAt(parity, side)*len(t.send[side]))
	}
	return n
}

func connect(a, b *verbs.QP) error {
	addrA, err := rclink.Local(a)
	if err != nil {
		return err
	}
	addrB, err := rclink.Local(b)
	if err != nil {
		return err
	}
	if err := rclink.Connect(a, addrB); err != nil {
		return err
	}
	return rclink.Connect(b, addrA)
}
