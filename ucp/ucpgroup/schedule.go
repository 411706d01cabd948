package ucpgroup

import (
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// schedule is one rank's part of a collective operation: a list of steps that the algorithm
// makes when the operation begins, and that are executed whenever the rank makes
// progress. Consecutive sends and receives are in flight at the same time; a wait waits for all
// steps before it. So an operation needs no goroutine, and several may be in flight.
type schedule struct {
	c     *Comm
	op    string
	tag   uint64 // the number of the operation, without a source
	steps []step
	at    int // the next step
	flows []*flow
	busy  int // flows in flight
	fold  func(into, from []byte)
	spare []byte // scratch memory, kept for the next operation

	aborting bool // the operation fails with err: no further step is started
	ended    bool
	err      error
	next     *schedule // in schedules, or in Comm.spare
}

// step is one step of a schedule.
type step struct {
	kind stepKind
	peer int // rank in the communicator
	buf  []byte
	from []byte // source of copy and fold
}

// stepKind is the action of a step.
type stepKind uint8

const (
	stepSend stepKind = iota // send buf to peer
	stepRecv                 // receive into buf from peer; the message must have the length of buf
	stepWait                 // wait until all earlier steps are complete
	stepCopy                 // copy from to buf
	stepFold                 // fold from into buf
)

// flow is a message of a step. The worker writes to info, so a flow must not move.
type flow struct {
	u    *ucp.Request
	info ucp.TagInfo
	peer int // rank in the communicator
	recv bool
	want int // expected length of a received message
}

// send adds a step that sends buf to a rank.
func (s *schedule) send(peer int, buf []byte) { s.add(step{kind: stepSend, peer: peer, buf: buf}) }

// recv adds a step that receives into buf from a rank.
func (s *schedule) recv(peer int, buf []byte) { s.add(step{kind: stepRecv, peer: peer, buf: buf}) }

// wait adds a step that waits for all steps before. A schedule ends with an implicit wait.
func (s *schedule) wait() { s.add(step{kind: stepWait}) }

// copy adds a step that copies from into buf.
func (s *schedule) copy(buf, from []byte) { s.add(step{kind: stepCopy, buf: buf, from: from}) }

// reduce adds a step that folds from into buf.
func (s *schedule) reduce(buf, from []byte) { s.add(step{kind: stepFold, buf: buf, from: from}) }

func (s *schedule) add(x step) { s.steps = append(s.steps, x) }

// scratch returns n bytes of scratch memory, which only this operation uses.
func (s *schedule) scratch(n int) []byte {
	if cap(s.spare) < n {
		s.spare = alignedBytes(n)
	}
	return s.spare[:n]
}

// schedules are the collective operations in flight, in the order in which they began.
type schedules struct{ first, last *schedule }

// begin makes the schedule of the next collective operation of the communicator.
func (c *Comm) begin(op string) *schedule {
	s := c.spare
	if s == nil {
		s = &schedule{c: c}
	}
	c.spare, s.next = s.next, nil
	s.op, s.tag = op, c.number
	c.number++
	return s
}

// start starts an operation, unless it was rejected.
func (c *Comm) start(s *schedule, refused error) (*Request, error) {
	if refused != nil {
		return nil, c.refuse(refused)
	}
	return s.start(), nil
}

// run is start, and waits until the operation is complete.
func (c *Comm) run(ctx context.Context, s *schedule, refused error) error {
	if refused != nil {
		return c.refuse(refused)
	}
	return s.run(ctx)
}

// refuse ends the group because of an invalid parameter of a collective operation: the
// other ranks may have begun it, and would wait for this one.
func (c *Comm) refuse(err error) error {
	var e *opErr
	if g := c.g; errors.Is(err, ucs.ErrInvalidParam) && errors.As(err, &e) && c.Size() > 1 {
		g.fail(&RankError{g.rank, e.inner()})
		g.step()
	}
	return err
}

// start starts the operation after its steps were added.
func (s *schedule) start() *Request {
	g := s.c.g
	s.advance()
	if !s.ended {
		g.list(s)
	}
	r := g.newRequest(s.c, kindCollective, AnySource)
	r.s = s
	return r
}

// list adds an operation that is in flight.
func (g *Group) list(s *schedule) {
	if g.last != nil {
		g.last.next = s
	} else {
		g.first = s
	}
	g.last = s
}

// run starts the operation and waits for it. If it is abandoned, the group ends, because the other
// ranks would wait for it.
func (s *schedule) run(ctx context.Context) error {
	r := s.start()
	if !r.Done() {
		if err := r.g.w.Until(ctx, r.done); err != nil {
			r.g.fail(&RankError{r.g.rank, fmt.Errorf("%w: %s: %w", ucs.ErrCanceled, s.op, err)})
			r.g.step()
			r.abandon()
			return err
		}
	}
	_, err := r.take()
	return err
}

// abandon aborts a collective operation. Its buffers then belong to the caller.
func (r *Request) abandon() {
	for _, f := range r.s.flows {
		if f.u != nil {
			f.u.GiveUp()
			f.u = nil
		}
	}
	r.s.busy = 0
	r.g.advanceAll()
	r.s.recycle()
	r.g.recycle(r)
}

// advanceAll advances all operations.
func (g *Group) advanceAll() {
	var before *schedule
	for s := g.first; s != nil; {
		next := s.next
		s.advance()
		if !s.ended {
			before, s = s, next
			continue
		}
		s.next = nil
		if before != nil {
			before.next = next
		} else {
			g.first = next
		}
		if next == nil {
			g.last = before
		}
		s = next
	}
}

// advance executes the steps that can be executed now.
func (s *schedule) advance() {
	if s.ended {
		return
	}
	s.collect()
	for !s.aborting && s.at < len(s.steps) {
		x := &s.steps[s.at]
		if x.kind == stepWait && s.busy > 0 {
			return
		}
		s.at++
		s.do(x)
	}
	s.ended = s.busy == 0
}

// do executes or starts one step.
func (s *schedule) do(x *step) {
	switch x.kind {
	case stepSend:
		s.doSend(x)
	case stepRecv:
		s.doRecv(x)
	case stepCopy:
		copy(x.buf, x.from)
	case stepFold:
		s.fold(x.buf, x.from)
	}
}

func (s *schedule) doSend(x *step) {
	c := s.c
	u, err := c.dial(x.peer).TagSend(collectiveTag(c.context, c.self, s.tag), x.buf, nil)
	if u != nil {
		s.flow(x.peer).u = u
	}
	if err != nil {
		s.failGroup(c.sendError(x.peer, err))
	}
}

func (s *schedule) doRecv(x *step) {
	c := s.c
	f := s.flow(x.peer)
	f.recv, f.want = true, len(x.buf)
	u, err := c.g.w.TagRecv(x.buf, collectiveTag(c.context, c.WorldRank(x.peer), s.tag), ^uint64(0), &f.info, nil)
	f.u = u
	switch {
	case u == nil:
		s.busy--
		s.received(f, err)
	case c.peer(x.peer).gone != nil:
		s.failGroup(c.peer(x.peer).gone)
	}
}

// flow returns a flow for a message that will be posted.
func (s *schedule) flow(peer int) *flow {
	s.busy++
	for _, f := range s.flows {
		if f.u == nil {
			f.peer, f.recv = peer, false
			return f
		}
	}
	f := &flow{peer: peer}
	s.flows = append(s.flows, f)
	return f
}

// collect removes complete messages.
func (s *schedule) collect() {
	if s.busy == 0 {
		return
	}
	for _, f := range s.flows {
		if f.u == nil || !f.u.Done() {
			continue
		}
		_, err := f.u.Test()
		f.u = nil
		s.busy--
		s.received(f, err)
	}
}

// received checks a message that was received.
func (s *schedule) received(f *flow, err error) {
	if err == nil && f.recv && f.info.Length != f.want {
		err = fmt.Errorf("received %d bytes, want %d: the ranks do not agree: %w", f.info.Length, f.want, ucs.ErrInvalidParam)
	}
	f.info.From = nil
	s.c.peer(f.peer).used = true
	if err != nil {
		g := s.c.g
		g.findLost(err)
		if gone := s.c.peer(f.peer).gone; gone != nil {
			err = gone
		}
		s.failGroup(err)
	}
}

// failGroup fails the operation with an error, and then the group, because the other ranks of the communicator would wait for
// this one.
func (s *schedule) failGroup(err error) {
	if s.aborting {
		return
	}
	s.abort(err)
	var gone *RankError
	if !errors.As(err, &gone) {
		err = &RankError{s.c.g.rank, err}
	}
	s.c.g.fail(err)
}

// abort fails the operation with an error when none of its messages is in flight any more.
func (s *schedule) abort(err error) {
	if s.ended || s.aborting {
		return
	}
	s.aborting, s.err = true, opError(s.op, err)
	for _, f := range s.flows {
		if f.u != nil && !f.u.Done() {
			f.u.Cancel()
		}
	}
}

// abortSchedules fails operations that cannot succeed any more.
func (g *Group) abortSchedules() {
	for s := g.first; s != nil; s = s.next {
		switch {
		case g.failed != nil:
			s.abort(g.failed)
			s.closeEPs()
		case g.closed:
			s.abort(ucs.ErrCanceled)
		default:
			s.abortWithoutPeer()
		}
	}
}

// abortWithoutPeer fails an operation that waits for a rank that is gone.
func (s *schedule) abortWithoutPeer() {
	for _, f := range s.flows {
		gone := s.c.peer(f.peer).gone
		if f.u != nil && f.recv && gone != nil && !f.u.Done() {
			s.failGroup(gone)
			return
		}
	}
}

// closeEPs closes, after the group has failed, the endpoints with messages that could not be canceled.
func (s *schedule) closeEPs() {
	for _, f := range s.flows {
		if f.u != nil && !f.u.Done() {
			s.c.g.scheduleClose(int(s.c.ranks[f.peer]))
		}
	}
}

// maxSpare limits the scratch memory that a schedule stores between operations, in bytes.
const maxSpare = 1 << 20

// recycle stores the schedule for the next operation of its communicator.
func (s *schedule) recycle() {
	clear(s.steps)
	s.steps, s.at, s.fold = s.steps[:0], 0, nil
	s.aborting, s.ended, s.err = false, false, nil
	if cap(s.spare) > maxSpare {
		s.spare = nil
	}
	s.next, s.c.spare = s.c.spare, s
}
