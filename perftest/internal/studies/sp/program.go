package sp

import "fmt"

// Kind is the type of an Event.
type Kind uint8

// Types of events.
const (
	Compute  Kind = iota // Work, Amount
	PostRecv             // Peer, Tag, Bytes
	PostSend             // Peer, Tag, Bytes
	Wait                 // for all messages posted before
)

// Event is one action of a rank in a time step. Fields that its type does not use are zero.
type Event struct {
	Kind   Kind
	Work   Work
	Amount int // in the unit of Work
	Peer   int // rank
	Tag    int // below Tags
	Bytes  int
}

// Program returns the events of a rank in each time step, in this order. They are recorded from the
// code that computes, with a worker that only counts and a comm that only records. After the last
// event no message is in flight. A run is a barrier, Class.Steps times these events, and a barrier.
//
// Messages with a tag between two ranks match in their order. Program returns an error if the grid
// of the class cannot be divided between that many ranks, or if there is no such rank.
func Program(class Class, ranks, rank int) ([]Event, error) {
	if rank < 0 || rank >= ranks {
		return nil, fmt.Errorf("rank %d of %d", rank, ranks)
	}
	l, err := newLayout(class.Grid, ranks, rank)
	if err != nil {
		return nil, err
	}
	r := &recorder{layout: l}
	d, err := newDriver(l, r, r)
	if err != nil {
		return nil, err
	}
	if err := d.step(); err != nil {
		return nil, err
	}
	return r.events, nil
}

// recorder is a worker and a comm that only record.
type recorder struct {
	layout *layout
	events []Event
}

func (r *recorder) do(t task) {
	e := Event{Kind: Compute, Work: t.work, Amount: t.amount(&r.layout.cells[t.cell])}
	if n := len(r.events); n > 0 && r.events[n-1].Kind == Compute && r.events[n-1].Work == e.Work {
		r.events[n-1].Amount += e.Amount
		return
	}
	r.events = append(r.events, e)
}

func (r *recorder) Rank() int { return r.layout.rank }
func (r *recorder) Size() int { return r.layout.edge * r.layout.edge }

func (r *recorder) Isend(to, tag int, b []byte) error {
	r.events = append(r.events, Event{Kind: PostSend, Peer: to, Tag: tag, Bytes: len(b)})
	return nil
}

func (r *recorder) Irecv(from, tag int, b []byte) error {
	r.events = append(r.events, Event{Kind: PostRecv, Peer: from, Tag: tag, Bytes: len(b)})
	return nil
}

func (r *recorder) WaitAll() error {
	r.events = append(r.events, Event{Kind: Wait})
	return nil
}

func (r *recorder) Sum([]float64) error { return nil }
func (r *recorder) Barrier() error      { return nil }
