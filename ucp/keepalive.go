package ucp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Without CapErrPeerIdle of its transport an EP finds out that its peer has died only when it
// sends: one that waits for a message would wait for ever, and a server would keep the EPs of
// clients that were killed. So the worker's alarm checks such lanes, at no cost to operations.

// keepaliveChecker returns the checker of a lane whose transport does not detect an idle dead peer by itself; nil
// if no check is needed.
func (c *Config) keepaliveChecker(x *lane) uct.Checker {
	if !x.Active || x.EP == nil || x.Iface.attr.Caps.Has(uct.CapErrPeerIdle) {
		return nil
	}
	if c.KeepaliveInterval == 0 && !x.Iface.attr.Caps.Has(uct.CapCheckDevice) {
		return nil
	}
	return x.EP.Ops().Check
}

// scheduleKeepalive sets the time of the next check, if a lane needs one.
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

// sendKeepalives sends keepalives over the lanes, if they are due and all earlier ones have completed. A transport that detects a
// dead peer reports that like any failure.
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

// sendKeepalive checks one lane. A lane without resources has operations in flight, which detect a dead peer as
// well.
func (l *link) sendKeepalive(x *lane) {
	if c := l.e.w.ctx.cfg.keepaliveChecker(x); c != nil {
		l.keepaliveComp.Count++
		if pending, err := c.Check(l.keepaliveComp); !pending || err != nil {
			l.keepaliveComp.Count--
		}
	}
}
