package steps

import (
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// Counter is notified of accesses to a counter that threads share: one cache line. In virtual time
// it charges for them what they cost on the machine of the model. In real time there is none.
type Counter interface {
	// Add is called for each locked instruction on the counter, by the thread that executed it;
	// other threads may run before it returns.
	Add()
	// Load is called for each read of it.
	Load()
}

// Shared is a number that several threads change. Any goroutine may call it. The zero value is 0.
type Shared struct {
	_     cpu.CacheLinePad
	n     atomic.Int64
	meter Counter
	_     cpu.CacheLinePad
}

// Meter sets the Counter that is notified; nil for none. No thread may be in a step.
func (s *Shared) Meter(c Counter) { s.meter = c }

// Load returns the number.
func (s *Shared) Load() int64 {
	if s.meter != nil {
		s.meter.Load()
	}
	return s.n.Load()
}

// Add changes the number and returns the new value.
func (s *Shared) Add(k int64) int64 {
	n := s.n.Add(k)
	if s.meter != nil {
		s.meter.Add()
	}
	return n
}

// Set sets the number to n. No thread may be in a step.
func (s *Shared) Set(n int64) { s.n.Store(n) }

// Subtract subtracts k; it returns false if the number is less. It reads first: otherwise threads that
// subtract too much and add it again could prevent each other from success.
func (s *Shared) Subtract(k int64) bool {
	if s.Load() < k {
		return false
	}
	if s.Add(-k) >= 0 {
		return true
	}
	s.Add(k)
	return false
}
