// Package lane has the transport endpoints of a connection: each with its operation
// classes, and as sets by role. It records which lanes broke and the reasons; the caller opens
// lanes.
//
// I is the caller's data about the transport of a lane. Everything belongs to the
// goroutine that owns the worker.
package lane

import (
	"github.com/gucx/gucx/ucp/internal/handshake"
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

	Active    bool  // it has roles
	Connected bool  // the transport has connected
	Retired   bool  // no longer in use; its EP is still open
	Failed    error // why the endpoint could not be made; nil if the peer has rejected it
	reported  bool  // a flush has reported that the lane broke
}

// New makes a lane of a transport endpoint.
func New[I comparable](ep uct.EP, i I, remote int) Lane[I] {
	ops := ep.Ops()
	return Lane[I]{
		EP: ep, Iface: i, Remote: remote,
		Put: ops.Put, Get: ops.Get, AMO: ops.Atomics, AM: ops.AM, Words: ops.Words, Mapped: ops.Mapped, Notify: ops.Notify, Connect: ops.Connect,
	}
}

// Set is the set of lanes of a connection, by number and by role. The zero value is empty.
type Set[I comparable] struct {
	Use    [wireup.Aux]*Lane[I] // active lane of each role
	Via    [wireup.Aux]I        // transport of the latest lane of each role
	Apart  bool                 // Single is always nil: a flush handles all lanes
	Single *Lane[I]             // the only lane that a flush or fence concerns; nil if there are several or none
	All    [handshake.MaxLanes]Lane[I]

	lost       [wireup.Aux]ucs.Status // status of the lane that each role has lost last
	lastLost   ucs.Status             // status of the latest lane in use that broke
	unreported ucs.Status             // status of a broken lane that no flush has reported
}

// Index returns the number of a lane; -1 if it is not in the set.
func (s *Set[I]) Index(x *Lane[I]) int {
	for n := range s.All {
		if &s.All[n] == x {
			return n
		}
	}
	return -1
}

// Of returns the lane of a transport endpoint, or nil.
func (s *Set[I]) Of(ep uct.EP) *Lane[I] {
	for n := range s.All {
		if x := &s.All[n]; x.EP == ep {
			return x
		}
	}
	return nil
}

// Activate assigns roles to a lane.
func (s *Set[I]) Activate(x *Lane[I], roles handshake.Roles) {
	x.Active = true
	for role := range wireup.Aux {
		if roles.Has(role) {
			s.Use[role], s.Via[role] = x, x.Iface
		}
	}
	s.FindSingle()
}

// SetConnected records that an operation was posted over a lane, so its transport has connected.
func (s *Set[I]) SetConnected(x *Lane[I]) {
	x.Connected = true
	s.FindSingle()
}

// Retire removes all roles from a lane that broke with a status. It returns the roles that the lane
// had here.
func (s *Set[I]) Retire(x *Lane[I], st ucs.Status) (had handshake.Roles) {
	if x.Active {
		s.lastLost = st
		if x.Connected && !x.reported {
			s.unreported = st
		}
	}
	for role := range wireup.Aux {
		if s.Use[role] == x {
			had |= handshake.Set(role)
			s.Use[role], s.lost[role] = nil, st
		}
	}
	x.Active, x.Retired, x.Failed = false, true, nil
	s.FindSingle()
	return had
}

// RetireUnused retires a lane whose roles have moved to other lanes.
func (s *Set[I]) RetireUnused(x *Lane[I]) {
	x.Active, x.Retired = false, true
	s.FindSingle()
}

// Clear removes all roles.
func (s *Set[I]) Clear() { s.Use, s.Single = [wireup.Aux]*Lane[I]{}, nil }

// Lost returns the status of the lane that a role has lost last; StatusOK if it has lost none.
func (s *Set[I]) Lost(role wireup.Role) ucs.Status { return s.lost[role] }

// LastLost returns the status of the latest lane in use that broke; StatusOK if none has.
func (s *Set[I]) LastLost() ucs.Status { return s.lastLost }

// Unreported returns the status of a broken lane that no flush has reported; StatusOK if there is none.
// Operations without a request may be lost with this lane.
func (s *Set[I]) Unreported() ucs.Status { return s.unreported }

// Reported records that a flush has reported it.
func (s *Set[I]) Reported() {
	s.unreported = ucs.StatusOK
	s.FindSingle()
}

// MarkReported records that a flush has reported a broken lane that is not retired yet.
func (x *Lane[I]) MarkReported() { x.reported = true }

// FindSingle updates Single. A lane that is not connected has no operations to flush or to fence.
// While a broken lane is not reported, Single is nil, so that a flush checks all lanes.
func (s *Set[I]) FindSingle() {
	s.Single = nil
	if s.Apart || s.unreported != ucs.StatusOK {
		return
	}
	n := 0
	for i := range s.All {
		if x := &s.All[i]; x.Active && x.Connected {
			s.Single = x
			n++
		}
	}
	if n > 1 {
		s.Single = nil
	}
}
