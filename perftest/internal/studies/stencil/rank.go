package stencil

import (
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// rank is a band of the grid with its threads.
type rank struct {
	set     *endpoint.Set
	first   int     // row of the grid
	grid    [2]band // by parity of the iteration
	barrier barrier
	threads []*thread
	undo    *cleanup.Stack
}

// depth is the maximum number of outstanding work requests of a QP, as in the study's message-rate
// benchmark.
const depth = 64

// openRank creates rank i of all, unconnected.
func (b *Problem) openRank(dev *verbs.Device, i int, cfg settings, undo *cleanup.Stack) (_ *rank, err error) {
	rows := b.Rows / (nodes * b.Ranks)
	k := &rank{first: i * rows, grid: [2]band{newBand(rows, b.Cols), newBand(rows, b.Cols)}, undo: undo}
	k.barrier.threads = int64(b.Threads)
	inline := cfg.Inline && b.Points*element <= steps.InlineLimit
	ends := endpoint.Config{Plan: cfg.Plan, LockCQ: cfg.LockCQ, QPs: sides}
	ends.Cap.MaxSendWR = depth
	if inline {
		ends.Cap.MaxInline = b.Points * element
	}
	if k.set, err = endpoint.Open(dev, b.Threads, ends); err != nil {
		return nil, err
	}
	undo.Add(k.set.Close)
	lanes := steps.NewLanes(k.set, depth, cfg.Atomics)
	lanes.Meter(cfg.Counter)
	k.barrier.arrived.Meter(cfg.Counter())
	k.barrier.generation.Meter(cfg.Counter())
	width := b.Cols / b.Threads
	for t, e := range k.set.Endpoints {
		th := &thread{grid: &k.grid, lo: t * width, hi: (t + 1) * width, points: b.Points, inline: inline,
			poller: lanes.Pollers[t], barrier: &k.barrier}
		if th.memory, err = newMemory(e, width, undo); err != nil {
			return nil, err
		}
		for side := range sides {
			th.beside[side].track = lanes.Tracks[t][side]
			th.rows[side] = make([]float64, width)
		}
		k.threads = append(k.threads, th)
	}
	return k, nil
}

// restart sets the initial grid, for a run of n iterations.
func (k *rank) restart(n int) {
	k.grid[0].fill(k.first)
	for _, t := range k.threads {
		t.restart(n)
	}
}

// Window is the destination of puts of the neighbor on one side of a thread.
type Window struct {
	QP   rclink.Addr
	Halo [2]uint64 // by parity of the exchange
	Word uint64    // for the number of completed exchanges of the neighbor
	RKey uint32
}

// windows returns the windows of all threads on a side.
func (k *rank) windows(side int) (list []Window, err error) {
	for _, t := range k.threads {
		d := t.memory.window(t.memory.mr, side)
		if d.QP, err = rclink.Local(t.beside[side].track.QP); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// window returns the window of a side, with the key of a registration of the memory.
func (m *memory) window(mr *verbs.MR, side int) Window {
	d := Window{RKey: mr.RKey(), Word: mr.Addr() + uint64(m.word[side])}
	for parity := range d.Halo {
		d.Halo[parity] = mr.Addr() + uint64(m.haloAt(parity, side))
	}
	return d
}

var errThreads = errors.New("neighbors have other threads")

// connect connects the QPs of a side to those of the neighbors' windows.
func (k *rank) connect(side int, windows []Window) error {
	if len(windows) != len(k.threads) {
		return errThreads
	}
	joined := map[*verbs.QP]bool{} // shared QPs occur several times
	for i, t := range k.threads {
		to := &t.beside[side]
		if !joined[to.track.QP] {
			joined[to.track.QP] = true
			if err := rclink.Connect(to.track.QP, windows[i].QP); err != nil {
				return err
			}
		}
		to.halo, to.rkey = windows[i].Halo, windows[i].RKey
	}
	return nil
}

// connectFar is connect for neighbors in another process, which report their progress by a put.
func (k *rank) connectFar(side int, windows []Window) error {
	if err := k.connect(side, windows); err != nil {
		return err
	}
	for i, t := range k.threads {
		t.beside[side].word = windows[i].Word
		t.beside[side].sent = t.memory.neighborCount(side)
	}
	return nil
}

// join connects rank a with b, which is below it, in this process. If QPs reach only their own
// context, each is connected to itself, and puts to the memory of the neighbor, which is registered
// in this context too.
func join(a, b *rank, loops bool) error {
	if err := a.connectSide(below, b, loops); err != nil {
		return err
	}
	return b.connectSide(above, a, loops)
}

// connectSide connects the QPs of a side with the rank there.
func (k *rank) connectSide(side int, to *rank, loops bool) error {
	windows, err := to.windows(opposite(side))
	if err != nil {
		return err
	}
	if loops {
		if windows, err = k.loop(side, to); err != nil {
			return err
		}
	}
	for i, t := range k.threads {
		t.beside[side].sent = &to.threads[i].sent
	}
	return k.connect(side, windows)
}

// loop returns windows to the memory of another rank, reached through the own QPs.
func (k *rank) loop(side int, to *rank) (list []Window, err error) {
	for i, e := range k.set.Endpoints {
		m := &to.threads[i].memory
		mr, err := e.PD.RegMR(m.bytes(), rclink.AllAccess)
		if err != nil {
			return nil, err
		}
		k.undo.Add(mr.Close)
		d := m.window(mr, opposite(side))
		if d.QP, err = rclink.Local(k.threads[i].beside[side].track.QP); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func opposite(side int) int { return sides - 1 - side }
