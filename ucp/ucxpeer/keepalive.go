package ucxpeer

import (
	"time"

	"github.com/gucx/gucx/internal/ucxwire"
)

// An EP with peer error handling checks the peer's endpoint periodically, as in UCX. A peer that has the endpoint does not
// reply. A peer that has removed it replies with WireupEPRemoved, and the EP fails.

// hasChecks reports whether the EP sends checks. Endpoints without error handling are not checked, because UCX uses their ids as
// pointers. An EP of a socket needs no checks: it fails with its socket.
func (e *EP) hasChecks() bool {
	return e.state < epFailed && e.errMode == ucxwire.ErrModePeer && e.remote != 0 && e.sock == nil
}

// check sends a check of the peer's endpoint.
func (e *EP) check() { e.sendWireup(ucxwire.WireupEPCheck, e.w.address()) }

// setAlarm sets the time of the next checks.
func (w *Worker) setAlarm() {
	if every := w.cfg.KeepaliveInterval; every > 0 {
		w.engine.Alarm.Set(w.engine.Alarm.Now() + every)
	}
}

// Alarm implements engine.Owner: it sends checks. An EP that has the last check or other messages in a queue sends none.
func (w *Worker) Alarm(time.Duration) {
	any := false
	for e := range w.eps.All() {
		if !e.hasChecks() {
			continue
		}
		if any = true; !e.waiting && len(e.control) == 0 {
			e.check()
		}
	}
	if any {
		w.setAlarm()
	}
}
