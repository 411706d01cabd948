package msgrate

// Counter is told of accesses to a counter that threads share: one cache line. In
// virtual time it makes them take as long as they do on the machine of the model.
type Counter interface {
	// Add is called for each locked instruction on the counter, by the thread that
	// did it; other threads may run before it returns.
	Add()
	// Load is called for each look at it.
	Load()
}

// Meter gives each counter that threads share one that make returns: the completions
// of threads with a CQ in common, the free places of a QP. No thread is in a step.
func (s *Senders) Meter(make func() Counter) {
	for _, t := range s.Threads {
		if t.sharedCQ {
			t.meter = make()
		}
		if t.free != nil && t.free.meter == nil {
			t.free.meter = make()
		}
	}
}
