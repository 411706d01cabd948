package steps

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// InlineLimit is the maximum length of data that applications send inline, in bytes: the default of
// a ConnectX-4 for users of verbs ("Scalable Communication Endpoints for MPI+Threads Applications",
// section V-A).
const InlineLimit = 60

// Track contains the work requests that one thread has posted to one QP; all are signaled. One
// goroutine at a time uses it; only the completions are counted by the thread that polls.
type Track struct {
	QP    *verbs.QP
	id    uint64
	depth int64   // of the QP
	room  *Shared // free places of a QP to which other threads also post; nil otherwise

	posted int64
	own    int64   // completed, if no other thread polls the CQ
	done   *Shared // completed, otherwise
	wr     [1]verbs.SendWR
}

// Post sets the ID of wr and posts it; false if the QP has no room: the thread then polls. It does
// not allocate.
func (t *Track) Post(wr verbs.SendWR) (ok bool, err error) {
	if !t.hasRoom() {
		return false, nil
	}
	t.posted++
	wr.ID, wr.Flags = t.id, wr.Flags|verbs.SendSignaled
	t.wr[0] = wr
	_, err = t.QP.PostSend(t.wr[:])
	return true, err
}

func (t *Track) hasRoom() bool {
	if t.room != nil {
		return t.room.Subtract(1)
	}
	return t.Outstanding() < t.depth
}

// Outstanding returns the number of work requests that are not complete.
func (t *Track) Outstanding() int64 {
	if t.done != nil {
		return t.posted - t.done.Load()
	}
	return t.posted - t.own
}

// complete counts one completion. The thread that polls the CQ calls it.
func (t *Track) complete() {
	if t.done == nil {
		t.own++
		return
	}
	t.done.Add(1)
	if t.room != nil {
		t.room.Add(1)
	}
}

// Poller polls a CQ that threads may share. Each thread has one.
type Poller struct {
	cq     *verbs.CQ
	tracks []*Track // of all threads of the set, by ID
	wc     []verbs.WC
}

var errOverrun = errors.New("completion queue overrun")

// Poll polls once, for the maximum number of completions, and counts them for the threads that
// posted the work requests. It returns their number.
func (p *Poller) Poll() (int, error) {
	n := p.cq.Poll(p.wc)
	if n < 0 {
		return 0, errOverrun
	}
	for i := range p.wc[:n] {
		if p.wc[i].Status != verbs.WCSuccess {
			return 0, failed(&p.wc[i])
		}
		p.tracks[p.wc[i].ID].complete()
	}
	return n, nil
}

//go:noinline
func failed(wc *verbs.WC) error {
	return fmt.Errorf("work request %d, qp %#x: %w", wc.ID, wc.QPN, wc.Status.Err())
}

// Lanes contains the objects by which the threads of a set post and poll.
type Lanes struct {
	Tracks  [][]*Track // by thread, and by its QPs
	Pollers []*Poller  // by thread
	shared  []*Shared
}

// NewLanes creates the tracks of all threads of set, whose QPs have the given depth. With atomics
// they count as if each QP and CQ were shared.
func NewLanes(set *endpoint.Set, depth int, atomics bool) *Lanes {
	l := &Lanes{}
	var all []*Track
	rooms := map[*verbs.QP]*Shared{}
	for _, e := range set.Endpoints {
		var own []*Track
		for _, qp := range e.QPs {
			t := &Track{QP: qp, id: uint64(len(all)), depth: int64(depth)}
			if atomics || e.SharedBy.CQUsers > 1 {
				t.done = l.newShared(0)
			}
			if atomics || e.SharedBy.QPUsers > 1 {
				if rooms[qp] == nil {
					rooms[qp] = l.newShared(int64(depth))
				}
				t.room = rooms[qp]
			}
			all, own = append(all, t), append(own, t)
		}
		l.Tracks = append(l.Tracks, own)
	}
	for _, e := range set.Endpoints {
		l.Pollers = append(l.Pollers, &Poller{cq: e.CQ, tracks: all, wc: make([]verbs.WC, depth*len(e.QPs))})
	}
	return l
}

func (l *Lanes) newShared(n int64) *Shared {
	s := &Shared{}
	s.Set(n)
	l.shared = append(l.shared, s)
	return s
}

// Meter replaces each counter that threads share by one that newCounter returns. No thread may be
// in a step.
func (l *Lanes) Meter(make func() Counter) {
	for _, s := range l.shared {
		s.Meter(make())
	}
}
