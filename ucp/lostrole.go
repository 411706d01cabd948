package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// lostRoles are the roles of an EP that have lost their last lane, while other lanes remain:
// operations that need these roles fail with the reason, and other operations continue.
type lostRoles struct {
	roles  handshake.Roles
	status ucs.Status // reason for which the latest role was lost
	why    error      // the same reason, with text
}

// failRoles fails all operations that need one of the roles.
func (l *link) failRoles(roles handshake.Roles, st ucs.Status) {
	all := l.lost.roles | roles
	if all != l.lost.roles {
		l.lost = lostRoles{all, st, fmt.Errorf("no lane left for %s: %w", all, l.joinCauses(st))}
	}
	l.e.lanesChanged()
	l.e.replay()
}

// lostRoleErr returns the reason for which the EP has lost a role; nil if it has a lane for the role or may get one.
func (e *EP) lostRoleErr(role wireup.Role) error {
	if !e.hasLost(role) {
		return nil
	}
	return e.link.lost.why
}

// hasLost reports whether the EP has lost a role: it has no lane for the role and will not get one.
func (e *EP) hasLost(role wireup.Role) bool { return e.link != nil && e.link.lost.roles.Has(role) }

// reachable reports whether the EP has a lane for a role or may get one.
func (e *EP) reachable(role wireup.Role) bool {
	return e.peer.Best[role].OK && !e.hasLost(role)
}

// failWithoutLane fails an operation whose role has no lane any more. The data of a message is transferred by
// another scheme.
func (r *Request) failWithoutLane() {
	r.trackUnposted()
	r.markUnreachable()
	r.fail(r.ep.link.lost.status)
	r.posted()
}

// markUnreachable marks a part of the data of a message that no lane can transfer. The data is then transferred by
// another scheme. It returns false if there is no other scheme, as for an operation of the caller.
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
