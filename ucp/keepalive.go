package ucp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// If its transport does not have CapErrPeerIdle, an EP detects the death of its peer only when it sends. An EP that waits
// for a message would wait without limit, and a server would never close the EPs of killed clients. So the worker's alarm
// sends keepalives over such lanes. Operations need no extra instructions for that.

// keepaliveChecker returns the checker of a lane if the lane needs keepalives, because its transport does not detect the
// death of an idle peer; otherwise nil.
func (c *Config) keepaliveChecker(x *lane) uct.Checker {
	if !x.Active || x.EP == nil || x.Iface.attr.Caps.Has(uct.CapErrPeerIdle) {
		return nil
	}
	if c.KeepaliveInterval == 0 && !x.Iface.attr.Caps.Has(uct.CapCheckDevice) {
		return nil
	}
	return x.EP.Ops().Check
}

// scheduleKeepalive sets the time of the next keepalives, if a lane needs them.
func (l *link) scheduleKeepalive() {
	w := l.e.w
	every := w.ctx.cfg.keepalive()
	if l.keepaliveAt = 0; every == 0 {
		return
	}
	for i := range l.lanes.All {
		if w.ctx.cfg.keepaliveChecker(&l.lanes.All[i]) != nil {
			l.keepaliveAt = w.engine.Alarm.Now() + every
			w.engine.Alarm.Set(l.keepaliveAt)
			return
		}
	}
}

// sendKeepalives sends keepalives over the lanes, if they are due and all earlier ones have completed. A transport that
// detects a dead peer reports that like any failure.
func (l *link) sendKeepalives() {
	if l.keepaliveAt == 0 || l.keepaliveAt > l.e.w.engine.Alarm.Now() {
		return
	}
	if l.keepaliveComp == nil {
		l.keepaliveComp = &uct.Completion{Func: func(*uct.Completion) {}}
	}
	if l.keepaliveComp.Count == 0 {
		l.keepaliveComp.Status = ucs.StatusOK
		for i := range l.lanes.All {
			l.sendKeepalive(&l.lanes.All[i])
		}
	}
	l.scheduleKeepalive()
}

// sendKeepalive sends a keepalive over one lane. It sends none over a lane without resources, because such a lane has
// operations in flight, which also detect a dead peer.
func (l *link) sendKeepalive(x *lane) {
	if c := l.e.w.ctx.cfg.keepaliveChecker(x); c != nil {
		l.keepaliveComp.Count++
		if pending, err := c.Check(l.keepaliveComp); !pending || err != nil {
			l.keepaliveComp.Count--
		}
	}
}
