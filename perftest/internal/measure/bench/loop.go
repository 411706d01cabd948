package bench

import (
	"time"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
)

// samples are the raw ticks of one layer in one cell. The slices are allocated before the clock
// runs.
type samples struct {
	post    []uint64 // time of the posting calls of each window
	flush   []uint64 // flush after it
	batches []uint64 // time of each batch without readings inside: see batch
	moves   *uint64  // lane.moves
}

func newSamples(windows, rounds int) *samples {
	return &samples{
		post:    make([]uint64, 0, windows),
		flush:   make([]uint64, 0, windows),
		batches: make([]uint64, 0, rounds),
		moves:   new(uint64),
	}
}

// total returns the sums of post and flush of each window.
func (s *samples) total() []uint64 {
	t := make([]uint64, len(s.post))
	for i := range t {
		t[i] = s.post[i] + s.flush[i]
	}
	return t
}

// pace is the order of posts and flushes in a batch.
type pace struct {
	warmup  int // operations before the first batch
	windows int // windows in a batch
	window  int // posts in each
	every   int // windows for each flush; divides windows
	samples int // windows in the loop with readings inside; at most windows
}

// maxSamples is the maximum number of windows of a layer in a cell with times of their own: 16 MiB
// of readings, enough for any percentile. More memory would have to be cleared by the kernel before
// the clock runs and freed at the end, which takes seconds for each gigabyte on a busy machine.
const maxSamples = 1 << 20

// ops returns the number of operations in a batch without readings inside.
func (p pace) ops() int { return p.windows * p.window }

// all returns the number of operations in both loops of a turn.
func (p pace) all() int { return p.ops() + p.samples*p.window }

// sampled returns the pace of the loop with readings inside.
func (p pace) sampled() pace {
	p.windows = p.samples
	p.every = min(p.every, p.samples)
	return p
}

// stamped runs a batch, and appends the ticks for posting each window and for the flush after it,
// if there is one. s must have room.
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

// plain runs a batch and returns its total ticks. It counts posts in moves.
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

// batch runs a batch twice: with readings inside for the distribution, and without for the mean,
// which comparisons use.
func (s *samples) batch(op layer.Op, p pace) error {
	if err := s.stamped(op, p.sampled()); err != nil {
		return err
	}
	whole, err := plain(op, p, s.moves)
	if err != nil {
		return err
	}
	s.batches = append(s.batches, whole)
	return nil
}

// warmUp repeats windows until it has run ops operations and at least the time atLeast.
func warmUp(op layer.Op, ops, window int, atLeast time.Duration, moves *uint64) (done int, err error) {
	for start := time.Now(); done < ops || time.Since(start) < atLeast; done += window {
		if _, err := plain(op, pace{windows: 1, window: window, every: 1}, moves); err != nil {
			return done, err
		}
	}
	return done, nil
}

// nothing is an operation that does nothing: it measures the loop itself.
type nothing struct{ n uint64 }

func (o *nothing) Post() error    { o.n++; return nil }
func (o *nothing) Flush() error   { return nil }
func (o *nothing) Poll() error    { return nil }
func (o *nothing) Result() uint64 { return o.n }
