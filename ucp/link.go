package ucp

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// link is the part of an EP that exists once an operation needed a lane.
type link struct {
	e      *EP
	conn   *wireup.Conn
	use    [wireup.Aux]*lane // active lane of each purpose
	lanes  [wireup.MaxLanes]lane
	single *lane // the active lane, if there is just one
	aux    auxLane

	farewell time.Duration // when an EP that ends no longer waits for the peer; 0 if never
}

// lane is one transport endpoint of an EP, with the operation classes that it has.
type lane struct {
	ep     uct.EP // nil if the slot is free
	iface  *iface
	remote int // index of the peer's resource
	active bool
	put    uct.Putter
	get    uct.Getter
	amo    uct.Atomics
	am     uct.AMSender
}

// handle feeds an event to the connection and carries out what comes of it.
func (e *EP) handle(ev wireup.Event) {
	l := e.link
	var more []wireup.Event
	now := e.w.alarm.now()
	for {
		ev.Now = now
		for _, act := range l.conn.Handle(ev) {
			if next, ok := l.carryOut(act); ok {
				more = append(more, next)
			}
		}
		if len(more) == 0 || e.state >= epFailed {
			break
		}
		ev, more = more[0], more[1:]
	}
	if at, ok := l.conn.Deadline(); ok {
		e.w.alarm.set(e.w, at)
	}
}

// carryOut does what the connection asks for; ok says that it causes an event.
func (l *link) carryOut(act wireup.Action) (next wireup.Event, ok bool) {
	switch act.Kind {
	case wireup.SendMsg:
		l.aux.send(act.Msg, act.Again)
	case wireup.OpenLane:
		return l.open(act), true
	case wireup.ConnectLane:
		return l.connect(act), true
	case wireup.ActivateLane:
		l.activate(act.Lane, act.Purposes)
	case wireup.CloseLane:
		l.lanes[act.Lane].close()
	case wireup.FailEP:
		l.failed(act.Status, act.Why)
	}
	return wireup.Event{}, false
}

func (l *link) failed(st ucs.Status, why string) {
	if l.e.adopted && st == ucs.StatusConnReset {
		l.e.startOver()
		return
	}
	l.e.fail(st, fmt.Errorf("%s: %w", why, st.Err()))
}

// open makes the transport endpoint of a lane.
func (l *link) open(act wireup.Action) wireup.Event {
	i := l.e.w.ifaces[act.Local]
	remote := &l.e.peer.addr.Resources[act.Remote]
	var p uct.EPParams
	if act.ViaIface {
		p = uct.EPParams{DeviceAddr: remote.DeviceAddr, IfaceAddr: remote.IfaceAddr}
	}
	ep, err := i.NewEP(p)
	if err != nil {
		return wireup.Event{Kind: wireup.LaneFailed, Lane: act.Lane, Status: statusOf(err)}
	}
	x := &l.lanes[act.Lane]
	*x = lane{ep: ep, iface: i, remote: act.Remote}
	x.put, _ = ep.(uct.Putter)
	x.get, _ = ep.(uct.Getter)
	x.amo, _ = ep.(uct.Atomics)
	x.am, _ = ep.(uct.AMSender)
	i.retain()
	l.e.w.byLane[ep] = l.e
	ev := wireup.Event{Kind: wireup.LaneOpened, Lane: act.Lane}
	if !act.ViaIface {
		c, ok := ep.(uct.EPConnector)
		if !ok {
			return wireup.Event{Kind: wireup.LaneFailed, Lane: act.Lane, Status: ucs.StatusUnsupported}
		}
		ev.EPAddr = c.EPAddr(nil)
	}
	return ev
}

func (l *link) connect(act wireup.Action) wireup.Event {
	x := &l.lanes[act.Lane]
	c, ok := x.ep.(uct.EPConnector)
	if !ok {
		return wireup.Event{Kind: wireup.LaneFailed, Lane: act.Lane, Status: ucs.StatusUnsupported}
	}
	if err := c.Connect(l.e.peer.addr.Resources[x.remote].DeviceAddr, act.EPAddr); err != nil {
		return wireup.Event{Kind: wireup.LaneFailed, Lane: act.Lane, Status: statusOf(err)}
	}
	return wireup.Event{Kind: wireup.LaneConnected, Lane: act.Lane}
}

// activate gives a lane to its purposes, binds the keys to it and lets waiting
// operations go.
func (l *link) activate(n int, purposes wireup.Purposes) {
	x := &l.lanes[n]
	x.active = true
	l.findSingle()
	for p := range wireup.Aux {
		if purposes.Has(p) {
			l.use[p] = x
		}
	}
	l.e.bindKeys()
	l.e.replay()
}

// purge ends the operations that wait for resources; see EP.aborting.
func (l *link) purge() {
	for i := range l.lanes {
		if ep := l.lanes[i].ep; ep != nil {
			ep.PurgePending(runPurged)
		}
	}
}

// runPurged lets a request see that its EP is aborting.
func runPurged(p *uct.PendingReq) { _ = p.Func(p) } // it ends, with nothing to tell

// findSingle updates single.
func (l *link) findSingle() {
	l.single = nil
	n := 0
	for i := range l.lanes {
		if l.lanes[i].active {
			l.single = &l.lanes[i]
			n++
		}
	}
	if n > 1 {
		l.single = nil
	}
}

func (l *link) closeLanes() {
	l.use, l.single = [wireup.Aux]*lane{}, nil
	for i := range l.lanes {
		l.lanes[i].close()
	}
}

// close closes the transport endpoint. Its operations in flight end in this call.
func (x *lane) close() {
	if x.ep == nil {
		return
	}
	ep, i := x.ep, x.iface
	*x = lane{}
	delete(i.w.byLane, ep)
	i.w.keep(ep.Close())
	i.release()
}
