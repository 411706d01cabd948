package ucp

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// stage is what a request does now: a static table of what it needs. A request goes from
// stage to stage until it ends; nothing asks what kind of operation it is.
type stage struct {
	class *class // functions of its protocol; nil if it has none

	name  string // in errors: "put"
	sized bool   // the length belongs to the name, as in "put 8 bytes"
	opped bool   // and the operation, as in "atomic add of 8 bytes"

	// role is that of the lane that post takes; noRole if it takes all or none.
	role wireup.Role
	// choose sets another stage once there is a lane for the role, if that depends on
	// what the lane has. nil: it does not.
	choose func(*Request)
	// post gives as much to the lane as that takes. ErrNoResource if something is left:
	// then it is called again. errNoCredit if that has to wait for credit of the peer: then
	// who gets the credit goes on with it. nil: there is nothing to post.
	post func(*Request) error
	// done runs when all that was posted has ended. It settles the request or sets the
	// next stage and goes on with that. nil: the request ends with the status of that.
	done func(*Request)
	// first runs when all operations before it have ended. nil: it does not wait.
	first func(*Request)
	// settled runs when the request has ended. May be nil.
	settled func(*Request)
	// stop reports whether a request that was canceled can end now. nil: it cannot.
	stop func(*Request) bool
	// unsent tells that a tagged message of that number, queued before, was canceled. nil:
	// it makes no difference.
	unsent func(r *Request, number uint64)

	// admit reports whether the operation may be posted now; otherwise it waits until the
	// EP replays what waits. nil: it may. It runs after choose.
	admit func(*Request) bool

	// split is set instead by chooseRails where several lanes share the bytes; part is the
	// stage of the part of each then, and share says how many lanes and how much for each.
	split *stage
	part  *stage
	share func(*Config) sharing
	// again is the stage of what is repeated as its lane broke; nil: the same.
	again *stage
	// instead sets the stage of another way for the data of a message, where the lane that is
	// left does not reach its memory. nil: there is none.
	instead func(*Request)
	// pinned: it takes the lane of that number that the request names, and no role.
	pinned bool

	lends bool // transports have the buffer as long as anything is under way
	steps bool // posted anew after done: a fence waits for its end
	fence bool // holds back what comes later
	tells bool // ends with the reason if a lane broke before
	ahead bool // no fence holds it back

	shares bool // lets others of its lane go on when it has used up the resources

	inOrder   bool // a message: it does not pass those before it
	announces bool // it says that there is a message, and keeps the data
	fetches   bool // a receive of a message that was announced
	filled    bool // the peer writes to the buffer itself, and says when it has
}

// class is what the stages of a protocol share: functions by which the core asks about a request that is not
// posted completely, and returns what it has. All may be nil except where said.
type class struct {
	// heldBack reports that requests before this one hold it back. Not nil if stages are inOrder.
	heldBack func(*Request) bool
	// waits is called when the request, which is inOrder, has entered EP.waiting. Not nil then.
	waits func(*Request)
	// dequeued is called when it has left that before its turn.
	dequeued func(*Request)
	// takenBack is called when nothing of the request was sent, and it waits again or fails.
	takenBack func(*Request)
	// canceled is takenBack for a request that the caller has canceled.
	canceled func(*Request)
	// askBack asks the peer for a request that it has, which is to be canceled. It reports false if the peer
	// does not have it.
	askBack func(*Request) bool
	// answered is called when the peer has replied to a request that does not await it. It reports whether the
	// request does from now on.
	answered func(*Request) bool
	// write takes a part of the data of a receive that has no buffer, at an offset.
	write func(r *Request, off int, data []byte)
	// abandon is called when the request goes on without its caller.
	abandon func(*Request)
	// free is called when nobody refers to the request any more.
	free func(*Request)
	// recycle puts the request into a pool of the protocol. nil: into that of the worker.
	recycle func(*Request)
}

// takeBack is called when nothing of the request was sent, and it waits again or fails.
func (r *Request) takeBack() {
	if c := r.stage.class; c != nil && c.takenBack != nil {
		c.takenBack(r)
	}
}

// noRole is the role of a stage that takes no lane, or each.
const noRole = wireup.Aux

// lane is the active lane of the stage's role; nil if there is none, or no role.
func (s *stage) lane(e *EP) *lane {
	if s.role == noRole {
		return nil
	}
	return e.lane(s.role)
}

// lacksLane reports that the stage needs a lane that is not there yet.
func (s *stage) lacksLane(e *EP) bool { return s.role != noRole && e.lane(s.role) == nil }

// start enters the operation and does what can be done now.
func (r *Request) start() (*Request, error) {
	r.ep.list(r)
	r.launch()
	return r.started()
}

// startFull is start for an operation whose lane has just refused it for want of resources:
// it is not tried again before it is queued.
func (r *Request) startFull() (*Request, error) {
	e := r.ep
	e.list(r)
	if e.fence.count == 0 && e.closing.aborting == ucs.StatusOK && r.waitsOn().EP.AddPending(&r.pend) == nil {
		r.trackUnposted()
		r.flags |= reqQueued
		r.worker.stats.waitsResource.Inc()
		return r, nil
	}
	r.launch()
	return r.started()
}

// launch posts the operation, or queues it where it has to wait.
func (r *Request) launch() {
	e := r.ep
	if e.closing.aborting != ucs.StatusOK {
		r.settle(e.closing.aborting)
		return
	}
	if r.stage.choose != nil && !r.stage.lacksLane(e) {
		r.stage.choose(r)
	}
	s := r.stage
	held := e.fence.count > 0 && r.flags&reqAhead == 0 && !s.ahead || s.inOrder && s.class.heldBack(r)
	if s.role != noRole && (held || s.lacksLane(e)) || s.admit != nil && !s.admit(r) {
		if !held && e.lacks(s.role) != nil {
			r.loseLane()
			return
		}
		e.wait(r)
		return
	}
	r.trackUnposted()
	r.proceed()
}

// proceed posts, and queues the operation on its lane when that has no resources.
func (r *Request) proceed() {
	for range retries {
		if r.advance() != uct.ErrNoResource {
			return
		}
		err := r.waitsOn().EP.AddPending(&r.pend)
		if err == nil {
			r.flags |= reqQueued
			r.worker.stats.waitsResource.Inc()
			return
		}
		if err != uct.ErrBusy {
			if r.reroute(err) {
				return
			}
			r.fail(statusOf(err))
			r.posted()
			return
		}
	}
	r.fail(ucs.StatusNoResource)
	r.posted()
}

// retries bounds a transport that has resources when asked and none when used.
const retries = 1000

// waitsOn is the lane that has no resources for the operation.
func (r *Request) waitsOn() *lane {
	if x := r.stage.lane(r.ep); x != nil {
		return x
	}
	return &r.ep.link.lanes.All[r.lane]
}

// advance posts as much as there are resources for. It returns ErrNoResource if
// some is left; then the operation must be queued.
func (r *Request) advance() error {
	s := r.stage // post may set another one, whose lane has taken nothing yet
	err := s.post(r)
	if r.flags&reqPosted != 0 || err == nil {
		r.proves(s)
	}
	switch {
	case err == uct.ErrNoResource:
		return err
	case err == errNoCredit:
		return nil
	case err != nil && r.reroute(err):
		return nil
	case err != nil:
		r.fail(statusOf(r.ep.reason(err)))
		if r.flags&reqPosted == 0 {
			r.takeBack()
		}
	}
	r.posted()
	return nil
}

// proves notes that the transport of the lane of s, which was posted, has taken something.
func (r *Request) proves(s *stage) {
	if x := s.lane(r.ep); x != nil && !x.Proven {
		r.ep.link.prove(x)
	}
}

// posted says that no more will be posted: the request goes on when what is under way
// has ended.
func (r *Request) posted() {
	if !r.stage.steps {
		r.untrack()
	}
	r.comp.Complete(ucs.StatusOK)
}

// trackUnposted marks a request of which a part is still to be posted, or that takes
// several steps: a fence must wait for it.
func (r *Request) trackUnposted() {
	if r.flags&reqUnposted == 0 && r.ep != nil {
		r.flags |= reqUnposted
		r.ep.counts.unposted++
	}
}

func (r *Request) untrack() {
	if r.flags&reqUnposted != 0 {
		r.flags &^= reqUnposted
		r.ep.counts.unposted--
	}
}

// settle ends the request, once. No transport has any part of it.
func (r *Request) settle(st ucs.Status) {
	if r.flags&reqDone != 0 {
		return
	}
	r.untrack()
	r.flags |= reqDone
	r.status = st
	if st != ucs.StatusOK && r.ep != nil {
		r.status = r.ep.failureStatus(r, st)
	}
	if r.old.result != nil && st == ucs.StatusOK && r.flags&reqGivenUp == 0 {
		*r.old.result = r.old.word
	}
	if r.remote != 0 {
		r.worker.pool.remote.Remove(r.remote)
	}
	if r.place() == placeListed {
		r.ep.unlist(r)
	}
	if r.awaits() {
		r.unawait()
	}
	if r.leased != nil {
		r.endLease()
	}
	if r.stage.settled != nil {
		r.stage.settled(r)
	}
	if p := r.parent; p != nil {
		r.parent = nil
		p.comp.Complete(r.status)
	}
	if r.flags&(reqTells|reqWakes|reqSpans) != 0 {
		r.tell()
	}
	r.collect()
}

// dispatched runs when a lane has resources again.
func (r *Request) dispatched() error {
	r.flags &^= reqQueued
	if r.flags&reqDone != 0 { // canceled meanwhile
		r.collect()
		return nil
	}
	if st := r.stopped(); st != ucs.StatusOK {
		r.fail(st)
		r.posted()
		return nil
	}
	if r.ep.link.rerouting {
		r.leaveLane()
		return nil
	}
	if err := r.advance(); err == uct.ErrNoResource {
		r.flags |= reqQueued
		if r.stage.shares && r.waitsOn().EP.AddPending(&r.pend) == nil {
			return nil // behind what waits
		}
		return err
	}
	return nil
}

// unposted is the stop of operations: nothing of them was posted.
func unposted(r *Request) bool {
	return r.flags&reqPosted == 0 && r.flags&(reqQueued|reqWaiting) != 0
}

// errNoCredit is what post returns when the rest has to wait for credit.
var errNoCredit = errors.New("no credit")
