// Package lane has the transport endpoints of a connection: one by one with the operation
// classes that they have, and as sets by role. It knows what broke, and how what was
// posted over it ends; who opens a lane, and why, is the caller's.
//
// I is what the caller knows of the transport of a lane. Everything belongs to the
// goroutine that owns the worker.
package lane

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Lane is one transport endpoint. The zero value is a free slot.
type Lane[I comparable] struct {
	EP     uct.EP // nil if there is none
	Iface  I
	Remote int // index of the peer's resource

	Put     uct.Putter
	Get     uct.Getter
	Mapped  uct.MappedGetter // nil if there is none
	AMO     uct.Atomics
	AM      uct.AMSender
	Words   uct.AMWordSender // nil if there is none
	Notify  uct.Notifier
	Connect uct.EPConnector

	Active  bool  // it has roles
	Proven  bool  // the transport has connected: its failure is the connection's
	Retired bool  // out of use; its EP is still there
	Failed  error // why it could not be made; nil if the peer did not want it
	told    bool  // a flush has reported that it broke
}

// New makes a lane of a transport endpoint.
func New[I comparable](ep uct.EP, i I, remote int) Lane[I] {
	ops := ep.Ops()
	return Lane[I]{
		EP: ep, Iface: i, Remote: remote,
		Put: ops.Put, Get: ops.Get, AMO: ops.Atomics, AM: ops.AM, Words: ops.Words, Mapped: ops.Mapped, Notify: ops.Notify, Connect: ops.Connect,
	}
}

// Set are the lanes of a connection, by number and by role. The zero value is empty.
type Set[I comparable] struct {
	Use    [wireup.Aux]*Lane[I] // active lane of each role
	Via    [wireup.Aux]I        // the transport of the latest one
	Apart  bool                 // Single stays nil: a flush takes the way of one for several lanes
	Single *Lane[I]             // the lane that a flush or fence is for, if there is just one
	All    [wireup.MaxLanes]Lane[I]

	lost       [wireup.Aux]ucs.Status // why the lane broke that a role lost last
	lastLost   ucs.Status             // why the latest lane broke that was in use
	unreported ucs.Status             // why a lane broke of which no flush has told
}

// Index is the number of a lane; -1 if it is not of the set.
func (s *Set[I]) Index(x *Lane[I]) int {
	for n := range s.All {
		if &s.All[n] == x {
			return n
		}
	}
	return -1
}

// Of is the lane of a transport endpoint, or nil.
func (s *Set[I]) Of(ep uct.EP) *Lane[I] {
	for n := range s.All {
		if x := &s.All[n]; x.EP == ep {
			return x
		}
	}
	return nil
}

// Activate gives roles to a lane.
func (s *Set[I]) Activate(x *Lane[I], roles wireup.Roles) {
	x.Active = true
	for role := range wireup.Aux {
		if roles.Has(role) {
			s.Use[role], s.Via[role] = x, x.Iface
		}
	}
	s.FindSingle()
}

// Prove notes that something was posted over a lane: its transport has connected.
func (s *Set[I]) Prove(x *Lane[I]) {
	x.Proven = true
	s.FindSingle()
}

// Retire takes all roles from a lane that broke for a reason. It returns those that it
// had here.
func (s *Set[I]) Retire(x *Lane[I], st ucs.Status) (had wireup.Roles) {
	if x.Active {
		s.lastLost = st
		if x.Proven && !x.told {
			s.unreported = st
		}
	}
	for role := range wireup.Aux {
		if s.Use[role] == x {
			had |= wireup.Set(role)
			s.Use[role], s.lost[role] = nil, st
		}
	}
	x.Active, x.Retired, x.Failed = false, true, nil
	s.FindSingle()
	return had
}

// Leave takes a lane out of use whose roles have moved to other lanes.
func (s *Set[I]) Leave(x *Lane[I]) {
	x.Active, x.Retired = false, true
	s.FindSingle()
}

// Clear takes all roles away.
func (s *Set[I]) Clear() { s.Use, s.Single = [wireup.Aux]*Lane[I]{}, nil }

// Lost is why the lane broke that a role lost last; StatusOK if it has lost none.
func (s *Set[I]) Lost(role wireup.Role) ucs.Status { return s.lost[role] }

// LastLost is why the latest lane broke that was in use; StatusOK if none has.
func (s *Set[I]) LastLost() ucs.Status { return s.lastLost }

// Unreported is why a lane broke of which no flush has told; StatusOK if there is none.
// Operations without a request may be lost with it.
func (s *Set[I]) Unreported() ucs.Status { return s.unreported }

// Reported notes that a flush has told of it.
func (s *Set[I]) Reported() {
	s.unreported = ucs.StatusOK
	s.FindSingle()
}

// Told notes that a flush has told of a lane that broke and is not retired yet.
func (x *Lane[I]) Told() { x.told = true }

// FindSingle updates Single. A lane that is not proven has nothing to flush or to fence;
// while there is a lane to report there is no single one, so that a flush looks.
func (s *Set[I]) FindSingle() {
	s.Single = nil
	if s.Apart || s.unreported != ucs.StatusOK {
		return
	}
	n := 0
	for i := range s.All {
		if x := &s.All[i]; x.Active && x.Proven {
			s.Single = x
			n++
		}
	}
	if n > 1 {
		s.Single = nil
	}
}
