package bench

import (
	"time"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
)

// samples holds raw ticks of one layer in one cell. Its slices are made before
// the clock runs.
type samples struct {
	post  []uint64 // posting calls of one window
	flush []uint64 // flush after it
	whole []uint64 // one batch without readings inside: see batch
	moves *uint64  // lane.moves
}

func newSamples(windows, rounds int) *samples {
	return &samples{
		post:  make([]uint64, 0, windows),
		flush: make([]uint64, 0, windows),
		whole: make([]uint64, 0, rounds),
		moves: new(uint64),
	}
}

// total returns post and flush of each window together.
func (s *samples) total() []uint64 {
	t := make([]uint64, len(s.post))
	for i := range t {
		t[i] = s.post[i] + s.flush[i]
	}
	return t
}

// pace is how posts and flushes alternate in a batch.
type pace struct {
	windows int // in a batch
	window  int // posts in each
	every   int // windows for each flush; divides windows
	samples int // windows in the loop with readings inside; at most windows
}

// maxSamples bounds how many windows of a layer in a cell are kept one by one: 16 MiB
// of readings, which are enough for any percentile. Pages of the memory for more
// would have to be cleared before the clock runs and freed at the end, by the
// kernel: seconds of a busy machine for each gigabyte.
const maxSamples = 1 << 20

// ops is the number of operations in a batch without readings inside.
func (p pace) ops() int { return p.windows * p.window }

// all is the number of operations in both loops of a turn.
func (p pace) all() int { return p.ops() + p.samples*p.window }

// sampled is the pace of the loop with readings inside.
func (p pace) sampled() pace {
	p.windows = p.samples
	p.every = min(p.every, p.samples)
	return p
}

// stamped runs a batch and appends the ticks of posting each window and of the flush
// after it, if there is one. There must be room in s.
func (s *samples) stamped(op layer.Op, p pace) error {
	n := len(s.post)
	post, flush := s.post[n:n+p.windows], s.flush[n:n+p.windows]
	left := p.every
	for i := range post {
		t0 := tick.Now()
		for range p.window {
			if err := op.Post(); err != nil {
				return err
			}
		}
		t1 := tick.Now()
		if left--; left == 0 {
			left = p.every
			if err := op.Flush(); err != nil {
				return err
			}
		}
		t2 := tick.Now()
		post[i], flush[i] = t1-t0, t2-t1
		*s.moves++
	}
	s.post, s.flush = s.post[:n+p.windows], s.flush[:n+p.windows]
	return nil
}

// plain runs a batch and returns the ticks of all. It counts posts in moves.
func plain(op layer.Op, p pace, moves *uint64) (ticks uint64, err error) {
	n := p.window * p.every
	t0 := tick.Now()
	for range p.windows / p.every {
		for range n {
			if err := op.Post(); err != nil {
				return 0, err
			}
			*moves++
		}
		if err := op.Flush(); err != nil {
			return 0, err
		}
	}
	return tick.Now() - t0, nil
}

// batch measures a batch twice: with readings inside for the distribution, and
// without for the mean, which comparisons rest on.
func (s *samples) batch(op layer.Op, p pace) error {
	if err := s.stamped(op, p.sampled()); err != nil {
		return err
	}
	whole, err := plain(op, p, s.moves)
	if err != nil {
		return err
	}
	s.whole = append(s.whole, whole)
	return nil
}

// warmUp repeats windows until ops operations and atLeast have gone by.
func warmUp(op layer.Op, ops, window int, atLeast time.Duration, moves *uint64) (done int, err error) {
	for start := time.Now(); done < ops || time.Since(start) < atLeast; done += window {
		if _, err := plain(op, pace{windows: 1, window: window, every: 1}, moves); err != nil {
			return done, err
		}
	}
	return done, nil
}

// nothing is an operation that does nothing: what the loop measures with it is
// the loop.
type nothing struct{ n uint64 }

func (o *nothing) Post() error    { o.n++; return nil }
func (o *nothing) Flush() error   { return nil }
func (o *nothing) Poll() error    { return nil }
func (o *nothing) Result() uint64 { return o.n }
