package cluster

import (
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/ucp"
)

// Rank is the environment of a program: a worker, endpoints to the other ranks, and a clock.
type Rank struct {
	c       *Cluster
	id      int
	process *timing.Process
	w       *ucp.Worker
	eps     []*ucp.EP
	stored  uint64              // how often another rank has stored something for this one in shared memory
	yield   func(struct{}) bool // in Prepare
	copied  map[tuple]bool      // by the sender, in the last operation
}

// ID returns the number of the rank.
func (r *Rank) ID() int { return r.id }

// Worker returns the worker of the rank.
func (r *Rank) Worker() *ucp.Worker { return r.w }

// EP returns the endpoint to another rank. The first call creates it.
func (r *Rank) EP(peer int) (*ucp.EP, error) {
	if r.eps[peer] == nil {
		e, err := r.w.NewEP(r.c.ranks[peer].w.Address(), ucp.EPConfig{})
		if err != nil {
			return nil, err
		}
		r.eps[peer] = e
	}
	return r.eps[peer], nil
}

// TagSend is ucp.EP.TagSend to another rank.
func (r *Rank) TagSend(peer int, tag uint64, buf []byte, p *ucp.OpParams) (*ucp.Request, error) {
	e, err := r.EP(peer)
	if err != nil {
		return nil, err
	}
	if !r.c.senderCopies {
		return e.TagSend(tag, buf, p)
	}
	// The copy precedes the post, but only the post shows whether there was a copy. So the rank is
	// charged for a copy if there was one in the last operation.
	t := tuple{peer, tag, len(buf)}
	expected := r.copied[t]
	if expected {
		r.c.model.Copy(len(buf))
	}
	before := r.copies()
	q, err := e.TagSend(tag, buf, p)
	copied := r.copies() != before
	if copied && !expected {
		r.c.model.Copy(len(buf))
	}
	r.copied[t] = copied
	return q, err
}

// tuple is a class of messages.
type tuple struct {
	peer int
	tag  uint64
	len  int
}

// copies returns the number of messages that the worker has copied to send them through queues.
// Such a copy is in no operation of a transport, which would show other copies.
func (r *Rank) copies() uint64 {
	for name, n := range r.w.Stats().Snapshot().All() {
		if strings.HasSuffix(name, copiesCounter) {
			return n
		}
	}
	return 0
}

// The variants of sends that ucp copies, with their counters.
const (
	copyingProto  = "tupleq_copy"
	copiesCounter = "tupleq.copies"
)

// Now returns the rank's clock.
func (r *Rank) Now() time.Duration { return duration(r.c.model.Now()) }

// Compute makes the rank compute for d, without progress.
func (r *Rank) Compute(d time.Duration) { r.c.model.Spend(timing.Time(d) * timing.Nanosecond) }

// Wait makes progress until an operation is complete, and releases its request. A nil request is
// complete.
func (r *Rank) Wait(q *ucp.Request) error {
	if q == nil {
		return nil
	}
	if err := r.Until(q.Done); err != nil {
		return err
	}
	_, err := q.Test()
	return err
}

// looks is the number of polls before a rank sleeps until an event: enough for a worker to poll
// everything that it has.
const looks = 128

// Until makes progress until done returns true: at the first call, or after a Progress.
func (r *Rank) Until(done func() bool) error {
	for !done() {
		seen, stored := r.c.model.Arrivals(), r.stored
		// A message that was stored during the poll needs another poll, which takes time.
		if r.w.Progress() == 0 && !done() && r.stored == stored && !r.look(done) && !r.sleep(seen) {
			return timing.ErrStalled
		}
	}
	return nil
}

// look polls. A poll without result takes no time, because the rank sleeps meanwhile. It returns
// true if there was a result.
func (r *Rank) look(done func() bool) (found bool) {
	r.c.model.Free(func() {
		for i := 0; i < looks && !found; i++ {
			found = r.w.Progress() > 0 || done()
		}
	})
	return found
}

// notify wakes the rank because another one has stored something in memory that both share.
func (r *Rank) notify() {
	r.stored++
	r.process.Notify()
}

// sleep lets the others run until something may have come.
func (r *Rank) sleep(seen uint64) bool {
	if r.yield != nil {
		return r.yield(struct{}{})
	}
	return r.c.model.Idle(seen)
}

// errWaits is the error of a Prepare whose programs wait for events that cannot occur.
var errWaits = errors.New("cluster: ranks wait for what does not come")

// prepareTurns is the maximum number of turns of a rank without an event before time starts:
// handshakes take some dozens.
const prepareTurns = 1 << 20

// Prepare runs a program on each rank before time starts: its work takes no time. The ranks take
// turns when they wait, so they may wait for each other.
func (c *Cluster) Prepare(program Program) (err error) {
	type turn struct {
		resume func() (struct{}, bool)
		stop   func()
	}
	errs := make([]error, len(c.ranks))
	left := map[int]turn{}
	for i, r := range c.ranks {
		resume, stop := iter.Pull(iter.Seq[struct{}](func(yield func(struct{}) bool) {
			r.yield = yield
			defer func() { r.yield = nil }()
			errs[i] = program(r)
		}))
		left[i] = turn{resume, stop}
	}
	for turns := 0; len(left) > 0 && err == nil; turns++ {
		for i, r := range c.ranks {
			c.model.Enter(r.process)
			t, ok := left[i]
			if !ok {
				_ = r.w.Progress() // other ranks may need it
				continue
			}
			if _, more := t.resume(); !more {
				delete(left, i)
				err = errors.Join(err, errs[i])
			}
		}
		if turns == prepareTurns {
			err = errWaits
		}
	}
	for _, t := range left {
		t.stop()
	}
	c.finishOutstanding()
	return err
}

// finishOutstanding makes the workers finish outstanding work: acknowledgements of handshakes.
func (c *Cluster) finishOutstanding() {
	defer c.model.Enter(nil)
	for quiet := 0; quiet < looks; quiet++ {
		for _, r := range c.ranks {
			c.model.Enter(r.process)
			if r.w.Progress() > 0 {
				quiet = 0
			}
		}
	}
}
