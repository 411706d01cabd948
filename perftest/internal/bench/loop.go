package bench

import (
	"time"

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/perftest/internal/tick"
)

// samples holds raw ticks of one layer in one cell. Its slices are made before
// the clock runs.
type samples struct {
	post  []uint64 // posting calls of one window
	flush []uint64 // flush after it
	whole []uint64 // one batch without readings inside: see batch
}

func newSamples(windows, rounds int) *samples {
	return &samples{
		post:  make([]uint64, 0, windows),
		flush: make([]uint64, 0, windows),
		whole: make([]uint64, 0, rounds),
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

// stamped runs windows of window operations each and appends the ticks of posting
// and flushing each window. There must be room in s.
func (s *samples) stamped(op layer.Op, windows, window int) error {
	n := len(s.post)
	post, flush := s.post[n:n+windows], s.flush[n:n+windows]
	for i := range post {
		t0 := tick.Now()
		for range window {
			if err := op.Post(); err != nil {
				return err
			}
		}
		t1 := tick.Now()
		if err := op.Flush(); err != nil {
			return err
		}
		t2 := tick.Now()
		post[i], flush[i] = t1-t0, t2-t1
	}
	s.post, s.flush = s.post[:n+windows], s.flush[:n+windows]
	return nil
}

// plain runs windows of window operations each and returns the ticks of all.
func plain(op layer.Op, windows, window int) (ticks uint64, err error) {
	t0 := tick.Now()
	for range windows {
		for range window {
			if err := op.Post(); err != nil {
				return 0, err
			}
		}
		if err := op.Flush(); err != nil {
			return 0, err
		}
	}
	return tick.Now() - t0, nil
}

// batch measures windows of window operations twice: with readings inside for the
// distribution, and without for the mean, which comparisons rest on.
func (s *samples) batch(op layer.Op, windows, window int) error {
	if err := s.stamped(op, windows, window); err != nil {
		return err
	}
	whole, err := plain(op, windows, window)
	if err != nil {
		return err
	}
	s.whole = append(s.whole, whole)
	return nil
}

// run repeats windows until ops operations and atLeast have gone by.
func warmUp(op layer.Op, ops, window int, atLeast time.Duration) (done int, err error) {
	for start := time.Now(); done < ops || time.Since(start) < atLeast; done += window {
		if _, err := plain(op, 1, window); err != nil {
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
func (o *nothing) Result() uint64 { return o.n }
