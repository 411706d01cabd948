package steps

import (
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// Counter is told of accesses to a counter that threads share: one cache line. In
// virtual time it makes them take as long as they do on the machine of the model. In
// real time there is none.
type Counter interface {
	// Add is called for each locked instruction on the counter, by the thread that
	// did it; other threads may run before it returns.
	Add()
	// Load is called for each look at it.
	Load()
}

// Shared is a number that several threads change. Any goroutine. The zero value is 0.
type Shared struct {
	_     cpu.CacheLinePad
	n     atomic.Int64
	meter Counter
	_     cpu.CacheLinePad
}

// Meter has accesses told to c, or to nobody. No thread is in a step.
func (s *Shared) Meter(c Counter) { s.meter = c }

// Load looks at it.
func (s *Shared) Load() int64 {
	if s.meter != nil {
		s.meter.Load()
	}
	return s.n.Load()
}

// Add changes it and returns what it is then.
func (s *Shared) Add(k int64) int64 {
	n := s.n.Add(k)
	if s.meter != nil {
		s.meter.Add()
	}
	return n
}

// Set begins anew with n. No thread is in a step.
func (s *Shared) Set(n int64) { s.n.Store(n) }

// Take takes k of what is there; false if it is less. It looks first: threads that
// took more than there is to give it back again could keep each other from finding any.
func (s *Shared) Take(k int64) bool {
	if s.Load() < k {
		return false
	}
	if s.Add(-k) >= 0 {
		return true
	}
	s.Add(k)
	return false
}
