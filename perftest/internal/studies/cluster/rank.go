package cluster

import (
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/timing"
)

// Rank is a program's place: a worker, endpoints to the others, and a clock.
type Rank struct {
	c       *Cluster
	id      int
	process *timing.Process
	w       *ucp.Worker
	eps     []*ucp.EP
	yield   func(struct{}) bool // in Prepare
	copied  map[tuple]bool      // by the sender, the last time
}

// ID is the number of the rank.
func (r *Rank) ID() int { return r.id }

// Worker is that of the rank.
func (r *Rank) Worker() *ucp.Worker { return r.w }

// EP is the endpoint to another rank, which is made when it is first asked for.
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
	// The copy comes before the post, which alone tells whether there was one: it is expected
	// where there was one the last time.
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

// tuple is a kind of message.
type tuple struct {
	peer int
	tag  uint64
	len  int
}

// copies is how many messages the worker has copied to send them through queues. Such a copy is in
// no operation of a transport, by which others are seen.
func (r *Rank) copies() uint64 {
	for name, n := range r.w.Stats().Snapshot().All() {
		if strings.HasSuffix(name, copiesCounter) {
			return n
		}
	}
	return 0
}

// The sender's copy in ucp: the variant that has it, and its counter.
const (
	copyingProto  = "tupleq_copy"
	copiesCounter = "tupleq.copies"
)

// Now is the rank's clock.
func (r *Rank) Now() time.Duration { return duration(r.c.model.Now()) }

// Compute has the rank do something else for d, without progress.
func (r *Rank) Compute(d time.Duration) { r.c.model.Spend(timing.Time(d) * timing.Nanosecond) }

// Wait makes progress until an operation has ended and gives its request back. A nil
// request has ended.
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

// looks is how often a rank looks whether there is anything to do before it sleeps until
// something comes: enough for a worker to look at all that it has.
const looks = 128

// Until makes progress until done reports true, which it does at once or after a
// Progress.
func (r *Rank) Until(done func() bool) error {
	for !done() {
		seen := r.c.model.Arrivals()
		if r.w.Progress() == 0 && !done() && !r.look(done) && !r.sleep(seen) {
			return timing.ErrStalled
		}
	}
	return nil
}

// look polls in vain, which takes no time: that goes by while the rank sleeps. True if it was not in
// vain.
func (r *Rank) look(done func() bool) (found bool) {
	r.c.model.Free(func() {
		for i := 0; i < looks && !found; i++ {
			found = r.w.Progress() > 0 || done()
		}
	})
	return found
}

// sleep lets the others run until something may have come.
func (r *Rank) sleep(seen uint64) bool {
	if r.yield != nil {
		return r.yield(struct{}{})
	}
	return r.c.model.Idle(seen)
}

// errWaits ends a Prepare whose programs wait for what does not come.
var errWaits = errors.New("cluster: ranks wait for what does not come")

// prepareTurns bounds how often a rank may wait in vain before time begins: handshakes
// take some dozens.
const prepareTurns = 1 << 20

// Prepare runs a program on each rank before time begins: what it does takes none. The
// ranks take turns where they wait, so they may wait for each other.
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
				_ = r.w.Progress() // others may need it
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
	c.settle()
	return err
}

// settle has the workers do what is left to do: acknowledgements of handshakes.
func (c *Cluster) settle() {
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
