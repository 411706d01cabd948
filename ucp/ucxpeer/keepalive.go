package ucxpeer

import (
	"time"

	"github.com/gucx/gucx/internal/ucxwire"
)

// An endpoint with peer error handling sends a check of the peer's endpoint from time to time, as UCX's do. A peer that has the
// endpoint does not reply; one that has removed it replies with WireupEPRemoved, which fails the EP.

// hasChecks reports that the EP sends checks. Endpoints without error handling are not checked: UCX uses their ids as pointers.
// An EP of a socket fails with that.
func (e *EP) hasChecks() bool {
	return e.state < epFailed && e.errMode == ucxwire.ErrModePeer && e.remote != 0 && e.sock == nil
}

// check asks the peer whether its endpoint is there.
func (e *EP) check() { e.sendWireup(ucxwire.WireupEPCheck, e.w.address()) }

// setAlarm sets the time of the next checks.
func (w *Worker) setAlarm() {
	if every := w.cfg.KeepaliveInterval; every > 0 {
		w.engine.Alarm.Set(w.engine.Alarm.Now() + every)
	}
}

// Alarm implements engine.Owner: it sends checks. An EP that cannot send has the last one, or other messages, queued.
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
