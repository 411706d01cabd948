package ucp

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// stage is the current step of a request: a static table of the functions and properties of the step. A request
// proceeds from stage to stage until it completes. The core does not depend on the type of operation.
type stage struct {
	class *class // functions of its protocol; nil if it has none

	name  string // in errors: "put"
	sized bool   // errors contain the length, as in "put 8 bytes"
	opped bool   // errors contain the atomic operation, as in "atomic add of 8 bytes"

	// role is the role of the lane that post uses; noRole if it uses all or none.
	role wireup.Role
	// choose replaces the stage when there is a lane for the role, if the choice depends on
	// the capabilities of the lane. May be nil.
	choose func(*Request)
	// post posts as much as the lane accepts. It returns ErrNoResource if a part is not posted:
	// then it is called again when the lane has resources. It returns errNoCredit if that part needs credit of the
	// peer: then the code that receives the credit posts it. nil: there is nothing to post.
	post func(*Request) error
	// done runs when all posted parts have completed. It completes the request or sets the
	// next stage and starts it. nil: the request completes with the status of the parts.
	done func(*Request)
	// first runs when all earlier operations have completed. nil: the stage does not wait.
	first func(*Request)
	// completed runs when the request has completed. May be nil.
	completed func(*Request)
	// tryCancel stops a canceled request. It reports whether the request can complete now. nil: it cannot.
	tryCancel func(*Request) bool

	// admit reports whether the operation may be posted now; otherwise it waits until the
	// EP replays waiting operations. nil: always. It runs after choose.
	admit func(*Request) bool

	// split replaces the stage, in chooseRails, if several lanes share the bytes. Then part is the
	// stage of each part, and share returns the number of lanes and the length of each part in bytes.
	split *stage
	part  *stage
	share func(*Config) sharing
	// again is the stage in which a transfer is repeated after its lane broke; nil: the same stage.
	again *stage
	// fallback sets the stage of another scheme for the data of a message, if the remaining lane
	// does not reach its memory. nil: there is none.
	fallback func(*Request)
	// pinned: Request.lane is the number of the lane; role does not select it.
	pinned bool

	usesBuffer      bool // transports may use the buffer of the caller while any part is in flight
	steps           bool // several steps are posted: a fence waits until the request is complete
	fence           bool // later operations wait until it is complete
	reportsLaneLoss bool // fails if a lane broke before
	unfenced        bool // fences do not block it

	shares bool // when the lane has no resources, it moves behind the other requests in the queue of the lane

	inOrder   bool // a message: it must not overtake earlier ones
	announces bool // sends an RTS; the data remains here
	fetches   bool // a receive of a rendezvous message
	filled    bool // the peer writes to the buffer, and sends a message when it is complete
}

// class has functions that the stages of a protocol share. The core calls them for a request that is not
// posted completely, and to release its resources. A function may be nil unless its comment excludes that.
type class struct {
	// isBlocked reports whether earlier requests block this one. Not nil if stages are inOrder.
	isBlocked func(*Request) bool
	// waits is called when the request, which is inOrder, has entered EP.waiting. Not nil in that case.
	waits func(*Request)
	// dequeued is called when the request has left EP.waiting before its turn.
	dequeued func(*Request)
	// revert is called when no part of the request was sent, and it waits again or fails.
	revert func(*Request)
	// canceled is revert for a request that the caller has canceled.
	canceled func(*Request)
	// requestDrop requests the peer to drop a message that the caller cancels. It returns false if the peer does not have the
	// message.
	requestDrop func(*Request) bool
	// answered is called when the peer has replied to a request that does not await a reply. It reports whether
	// the request awaits one from now on.
	answered func(*Request) bool
	// write stores a part of the data of a receive that has no buffer, at an offset.
	write func(r *Request, off int, data []byte)
	// abandon is called when the caller abandons the request, which continues.
	abandon func(*Request)
	// bufferInUse replaces Request.bufferInUse, for a request whose parts have the buffers.
	bufferInUse func(*Request) bool
	// free is called when there are no more references to the request.
	free func(*Request)
	// recycle returns the request to a pool of the protocol. nil: to the pool of the worker.
	recycle func(*Request)
}

// revertSend calls class.revert. No part of the request was sent, and the request waits again or fails.
func (r *Request) revertSend() {
	if c := r.stage.class; c != nil && c.revert != nil {
		c.revert(r)
	}
}

// noRole is the role of a stage that uses no lane, or all.
const noRole = wireup.Aux

// lane returns the active lane of the stage's role; nil if there is none, or no role.
func (s *stage) lane(e *EP) *lane {
	if s.role == noRole {
		return nil
	}
	return e.lane(s.role)
}

// lacksLane reports whether the stage needs a lane that is not active yet.
func (s *stage) lacksLane(e *EP) bool { return s.role != noRole && e.lane(s.role) == nil }

// start adds the operation to the EP, and posts or queues it.
func (r *Request) start() (*Request, error) {
	r.ep.list(r)
	r.launch()
	return r.started()
}

// startFull is start for an operation that its lane has just rejected for lack of resources:
// it queues the operation without another attempt.
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

// launch posts the operation, or queues it if it must wait.
func (r *Request) launch() {
	e := r.ep
	if e.closing.aborting != ucs.StatusOK {
		r.complete(e.closing.aborting)
		return
	}
	if r.stage.choose != nil && !r.stage.lacksLane(e) {
		r.stage.choose(r)
	}
	s := r.stage
	held := e.fence.count > 0 && r.flags&reqUnfenced == 0 && !s.unfenced || s.inOrder && s.class.isBlocked(r)
	if s.role != noRole && (held || s.lacksLane(e)) || s.admit != nil && !s.admit(r) {
		if !held && e.lostRoleErr(s.role) != nil {
			r.failWithoutLane()
			return
		}
		e.wait(r)
		return
	}
	r.trackUnposted()
	r.proceed()
}

// proceed posts the operation, and queues it on its lane if the lane has no resources.
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

// retries limits the attempts with a transport that reports resources and then rejects the post.
const retries = 1000

// waitsOn returns the lane that has no resources for the operation.
func (r *Request) waitsOn() *lane {
	if x := r.stage.lane(r.ep); x != nil {
		return x
	}
	return &r.ep.link.lanes.All[r.lane]
}

// advance posts as much as the lane accepts. It returns ErrNoResource if
// a part is not posted; then the caller must queue the operation.
func (r *Request) advance() error {
	s := r.stage // post may set another stage, whose lane has not accepted a post yet
	err := s.post(r)
	if r.flags&reqPosted != 0 || err == nil {
		r.markLaneConnected(s)
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
			r.revertSend()
		}
	}
	r.posted()
	return nil
}

// markLaneConnected records that the transport of the lane of s has accepted a post.
func (r *Request) markLaneConnected(s *stage) {
	if x := s.lane(r.ep); x != nil && !x.Connected {
		r.ep.link.markConnected(x)
	}
}

// posted is called when all parts are posted. The request continues when all parts have
// completed.
func (r *Request) posted() {
	if !r.stage.steps {
		r.untrack()
	}
	r.comp.Complete(ucs.StatusOK)
}

// trackUnposted marks a request that is posted in part, or has
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

// complete completes the request, once. No transport uses any part of it.
func (r *Request) complete(st ucs.Status) {
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
		r.removeAwaited()
	}
	if r.cached != nil {
		r.releaseCached()
	}
	if r.stage.completed != nil {
		r.stage.completed(r)
	}
	if p := r.parent; p != nil {
		r.parent = nil
		p.comp.Complete(r.status)
	}
	if r.flags&(reqOnDone|reqWakes|reqSpans) != 0 {
		r.queueCompletion()
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
		if r.stage.shares {
			_ = r.waitsOn().EP.AddPending(&r.pend) // behind the other requests of the lane, or else first again
		}
		return err
	}
	return nil
}

// unposted is the tryCancel of operations that can be canceled until a part is posted.
func unposted(r *Request) bool {
	return r.flags&reqPosted == 0 && r.flags&(reqQueued|reqWaiting) != 0
}

// errNoCredit is returned by post if the rest must wait for credit.
var errNoCredit = errors.New("no credit")
