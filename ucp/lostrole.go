package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// lostRoles are the roles of an EP that have lost their last lane, where other lanes are left:
// what needs them ends with the reason, and the rest goes on.
type lostRoles struct {
	roles  wireup.Roles
	status ucs.Status // why the latest was lost
	why    error      // the same, for people
}

// failRoles has everything that needs one of the roles end.
func (l *link) failRoles(roles wireup.Roles, st ucs.Status) {
	all := l.lost.roles | roles
	if all != l.lost.roles {
		l.lost = lostRoles{all, st, fmt.Errorf("no lane left for %s: %w", all, l.joinCauses(st))}
	}
	l.e.lanesChanged()
	l.e.replay()
}

// lostRoleErr is why the EP has no lane for a role, and will not get one; nil if it may have one.
func (e *EP) lostRoleErr(role wireup.Role) error {
	if !e.hasLost(role) {
		return nil
	}
	return e.link.lost.why
}

// hasLost reports that the EP has no lane for a role, and will not get one.
func (e *EP) hasLost(role wireup.Role) bool { return e.link != nil && e.link.lost.roles.Has(role) }

// reachable reports that there is a lane for a role, or may be.
func (e *EP) reachable(role wireup.Role) bool {
	return e.peer.Best[role].OK && !e.hasLost(role)
}

// failWithoutLane ends an operation whose role has no lane any more. The data of a message goes
// another way.
func (r *Request) failWithoutLane() {
	r.trackUnposted()
	r.markUnreachable()
	r.fail(r.ep.link.lost.status)
	r.posted()
}

// markUnreachable marks a part of the data of a message that no lane takes: the data goes another
// way. It reports false if there is none, as for an operation of the caller's.
func (r *Request) markUnreachable() bool {
	whole := r
	for whole != nil && whole.stage.fallback == nil {
		whole = whole.parent
	}
	if whole == nil {
		return false
	}
	for p := r; p != whole; p = p.parent {
		p.flags |= reqNoKey
	}
	whole.flags |= reqNoKey
	return true
}
