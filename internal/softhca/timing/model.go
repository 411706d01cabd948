package timing

import "math/rand/v2"

// Model is one machine: cores, one NIC, and the objects of all contexts that are open
// on it; or several such machines side by side, with a NIC each. It is used by one
// goroutine at a time.
type Model struct {
	agenda
	params  Params
	nics    []*NIC
	stats   Stats
	current *Thread // thread in a step
	inRun   bool
	outside Time       // of Clock outside of Run
	remote  bool       // see NewNetwork
	process *Process   // see Enter
	random  *rand.Rand // of jitter; nil outside of Run

	inFlight  int    // work requests
	marks     uint64 // posts, and polls that found something
	idleSteps int    // consecutive steps without effect
	err       error
}

// New returns a machine. ErrInvalidParam for impossible costs.
func New(p Params) (*Model, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	m := &Model{params: p}
	m.NewNIC()
	return m, nil
}

// call returns the time of a call with cost d, including jitter.
func (m *Model) call(d Time) Time {
	if j := m.params.Jitter; j > 0 {
		d += Time(m.random.Int64N(int64(j) + 1))
	}
	return d
}

// Now returns the virtual time: 0 when the model is created.
func (m *Model) Now() Time { return m.now }

// Stats contains counters of events so far, and the waits of threads and messages.
type Stats struct {
	Messages, Doorbells, BlueFlames uint64
	Polls, Completions              uint64
	Reads                           uint64 // DMA reads by the NIC
	NotReady                        uint64 // messages that were sent again; see NewNetwork

	// Waits, summed over threads, or over messages.
	QueueLockWait, RegisterLockWait, CQLockWait Time
	PageWait                                    Time // for another register of the UAR page
	RailWait                                    Time // for a translation engine

	// Busy times, of all NICs.
	Pipeline, FromHost, ToHost Time
}

// Stats returns the counters.
func (m *Model) Stats() Stats {
	s := m.stats
	for _, n := range m.nics {
		s.Pipeline += n.pipeline.busy
		s.FromHost += n.fromHost.busy
		s.ToHost += n.toHost.busy
	}
	return s
}
