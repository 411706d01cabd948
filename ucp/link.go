package ucp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/unordered"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	lanes "github.com/gucx/gucx/ucp/internal/lane"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// link is the part of an EP that exists from the first operation that needs a lane.
type link struct {
	e              *EP
	conn           *handshake.Conn
	lanes          lanes.Set[*iface]
	rails          railSet       // the lanes that share large transfers
	group          int           // index in Worker.lanes.groups of the domains of rails; -1 if they are fewer than two
	place          int           // index in Worker.lanes.links
	window         int64         // window of the EP until it has messages, in bytes
	tried          []givenUp     // transports that failed, with the reasons
	lost           lostRoles     // roles that have no lane any more
	carrier        conn.Carrier  // of handshake messages
	reserved       uct.EP        // keeps the connection of the carrier open; see reserveCarrier
	within         time.Duration // time limit for each transport connection; see within.go
	idle           idleLanes     // for closing the lanes of an EP without operations
	moves          *laneMoves    // lanes that are on trial or that roles move away from; nil until the first
	losses         uint64        // number of lanes that have broken
	undecided      []*Request    // failed transfers that may be repeated
	decided        *Request      // the failed transfer that is not repeated and completes now
	pause          int           // rounds of Progress until undecided is processed
	railsRequested bool          // lanes of rma_bw were requested

	halfOpen           bool            // see passive.go
	expires            time.Duration   // deadline of a half-open EP, in time of the worker's alarm; 0 for none
	keepaliveAt        time.Duration   // time of the next keepalive check; 0 for none; see keepalive.go
	keepaliveComp      *uct.Completion // of the keepalive checks in flight, which Count counts; nil before the first
	rerouting          bool            // the queue of a lane is being purged to move operations to another lane
	answers            int             // replies to the peer's atomics that were not sent yet
	disconnectDeadline time.Duration   // when a closing EP stops waiting for the peer; 0 for never

	connected bool // a lane was activated: Worker.stats counts the EP
}

// lane is one transport endpoint of an EP.
type lane = lanes.Lane[*iface]

// addLink adds a link to the worker.
func (w *Worker) addLink(l *link) {
	l.place = len(w.lanes.links)
	w.lanes.links = append(w.lanes.links, l)
}

// dropLink removes a link from the worker, in constant time.
func (w *Worker) dropLink(l *link) {
	unordered.Remove(&w.lanes.links, l.place).place = l.place
}

// handle passes an event to the connection and executes the actions that it returns. It does the same for the events that
// these actions cause.
func (e *EP) handle(ev handshake.Event) {
	l := e.link
	var more []handshake.Event
	now := e.w.engine.Alarm.Now()
	for {
		ev.Now = now
		acts := l.conn.Handle(ev)
		e.each(func(p *protocol) func(*EP) { return p.learned })
		for _, act := range acts {
			if next, ok := l.execute(act); ok {
				more = append(more, next)
			}
		}
		if len(more) == 0 || e.state >= epFailed {
			break
		}
		ev, more = more[0], more[1:]
	}
	if at, ok := l.conn.Deadline(); ok {
		e.w.engine.Alarm.Set(at)
	}
}

// execute executes an action. ok reports whether the action causes an event, which is next.
func (l *link) execute(act handshake.Action) (next handshake.Event, ok bool) {
	switch act.Kind {
	case handshake.SendMsg:
		l.carrier.Send(l.e.peer.Seal(act.Msg.Append(nil)), act.Again)
	case handshake.OpenLane:
		return l.open(act), true
	case handshake.ConnectLane:
		return l.connect(act), true
	case handshake.ActivateLane:
		l.cancelMoves(act.Lane, act.Roles)
		l.activate(act.Lane, act.Roles)
	case handshake.CloseLane:
		l.retire(&l.lanes.All[act.Lane], act.Status)
		l.endMoves(act.Lane)
		l.close(&l.lanes.All[act.Lane])
		l.lanes.All[act.Lane] = lane{}
		l.reserveCarrier()
		if len(l.undecided) > 0 {
			l.e.w.schedule(l.e)
		}
	case handshake.RetireLane:
		l.retire(&l.lanes.All[act.Lane], act.Status)
	case handshake.LoseRoles:
		l.failRoles(act.Roles, act.Status)
	case handshake.ProbeLane:
		l.probeLane(act.Lane, l.e.peer.Seal(act.Msg.Append(nil)))
	case handshake.ReturnLane:
		l.returned(act.Lane, act.Roles)
	case handshake.QuiesceLane:
		l.moveRolesFrom(act.Lane, act.Roles)
	case handshake.DrainLane:
		l.drain(act)
	case handshake.CheckIdle:
		l.idle.check = true
		l.e.w.schedule(l.e)
	case handshake.WentIdle:
		l.wentIdle()
	case handshake.KeepLanes:
		l.keepLanes(act.Status)
	case handshake.FailEP:
		l.failed(act.Status, act.Why)
	}
	return handshake.Event{}, false
}

func (l *link) failed(st ucs.Status, why string) {
	if l.e.origin.adopted && st == ucs.StatusPeerClosed {
		l.e.startOver()
		return
	}
	for i := range l.lanes.All {
		if x := &l.lanes.All[i]; x.Failed != nil {
			l.giveUp(x.Iface, x.Failed)
		}
	}
	err := l.joinCauses(st)
	if why != "" {
		err = fmt.Errorf("%s: %w", why, err)
	}
	if l.e.onlyClosed() {
		l.e.setFailureCause(st, err, nil)
	}
	l.e.fail(st, err, nil)
}

// connecting reports whether a handshake is in progress and its carrier is open. In this case the peer waits for this side,
// even if a transport reports that the peer is gone, and the carrier must not be closed before the end of the handshake.
func (l *link) connecting() bool { return !l.conn.Quiet() && !l.conn.Over() && !l.carrier.Idle() }

// joinCauses returns the error for a status, with the reasons for which transports were given up.
func (l *link) joinCauses(st ucs.Status) error {
	if len(l.tried) > 0 {
		return ucs.Because(st, ucs.Join(l.whyGivenUp()...))
	}
	return st.Err()
}

// open opens the transport endpoint of a lane.
func (l *link) open(act handshake.Action) handshake.Event {
	l.openedOnTrial(act.Lane)
	i := l.e.w.ifaces[act.Local]
	remote := &l.e.peer.Addr.Resources[act.Remote]
	var p uct.EPParams
	if act.ViaIface {
		p = uct.EPParams{DeviceAddr: remote.DeviceAddr, IfaceAddr: remote.IfaceAddr, Peer: l.e.peerIdentity(), Dial: uct.DialNow, Within: l.within}
		if l.e.origin.unverified {
			p.Dial = uct.DialByPeer
		}
	}
	ep, err := i.NewEP(p)
	if err != nil {
		l.lanes.All[act.Lane] = lane{Iface: i, Failed: err}
		return handshake.Event{Kind: handshake.LaneFailed, Lane: act.Lane, Status: statusOf(err)}
	}
	x := &l.lanes.All[act.Lane]
	*x = lanes.New(ep, i, act.Remote)
	x.Connected = !act.ViaIface
	l.e.laneOpened(x)
	i.Retain()
	l.e.w.lanes.byEP[ep] = laneOwner{e: l.e}
	ev := handshake.Event{Kind: handshake.LaneOpened, Lane: act.Lane}
	if !act.ViaIface {
		if x.Connect == nil {
			return handshake.Event{Kind: handshake.LaneFailed, Lane: act.Lane, Status: ucs.StatusUnsupported}
		}
		ev.EPAddr = x.Connect.EPAddr(nil)
	}
	return ev
}

func (l *link) connect(act handshake.Action) handshake.Event {
	x := &l.lanes.All[act.Lane]
	if x.Connect == nil {
		return handshake.Event{Kind: handshake.LaneFailed, Lane: act.Lane, Status: ucs.StatusUnsupported}
	}
	if err := x.Connect.Connect(l.e.peer.Addr.Resources[x.Remote].DeviceAddr, act.EPAddr); err != nil {
		x.Failed = err
		return handshake.Event{Kind: handshake.LaneFailed, Lane: act.Lane, Status: statusOf(err)}
	}
	return handshake.Event{Kind: handshake.LaneConnected, Lane: act.Lane}
}

// markConnected records that an operation was posted over a lane, so its transport is connected, and binds keys to
// the lane.
func (l *link) markConnected(x *lane) {
	l.lanes.SetConnected(x)
	l.e.bind()
}

// activate assigns roles to a lane, binds keys to it and starts the waiting operations.
func (l *link) activate(n int, roles handshake.Roles) {
	l.lanes.Activate(&l.lanes.All[n], roles)
	if l.moves != nil && roles.Has(wireup.AM) {
		l.moves.oldAM = nil
	}
	l.e.each(func(p *protocol) func(*EP) { return p.laneActivated })
	l.lanesInUse()
	l.reserveCarrier()
	l.findRails()
	l.e.lanesChanged()
	if roles.Has(wireup.RMABW) || roles.Has(wireup.RMA) && l.e.w.ctx.cfg.rmaSharing().rails > 1 {
		l.needRails() // the peer splits transfers over several lanes, or this side will
	}
	l.e.bind()
	l.e.replay()
}

// purge fails the operations that wait for resources of a transport; see epClose.
func (l *link) purge() {
	for i := range l.lanes.All {
		if ep := l.lanes.All[i].EP; ep != nil {
			ep.PurgePending(runPurged)
		}
	}
}

// runPurged calls a purged request, which sees that its EP is aborting and completes.
func runPurged(p *uct.PendingReq) { _ = p.Func(p) } // the result does not matter: the request completes

func (l *link) closeLanes() {
	l.lanes.Clear()
	l.rails, l.group = railSet{}, -1
	for i := range l.lanes.All {
		l.close(&l.lanes.All[i])
	}
}

// close closes the transport endpoint of a lane. Its operations in flight may complete later: while
// the EP has some, the worker polls the iface.
func (l *link) close(x *lane) {
	if x.EP == nil {
		return
	}
	ep, i := x.EP, x.Iface
	if l.moves != nil {
		ep.PurgePending(runPurged) // requests of trials and moves
	}
	*x = lane{}
	delete(i.w.lanes.byEP, ep)
	i.w.addCloseError(ep.Close())
	if l.e.busy() {
		l.e.implicit.await()
		l.e.retainIface(i)
		return
	}
	i.Release()
}

// laneOwner is the EP that owns a transport endpoint, and the carrier that uses it; carrier is nil
// for a lane.
type laneOwner struct {
	e       *EP
	carrier *conn.AM
}

// railSet is the set of lanes that share large transfers.
type railSet struct {
	proto.Rails
	lanes [proto.MaxRails]uint8 // lane numbers, the highest bandwidth first
}

func (s *railSet) add(lane uint8, bandwidth uint64) {
	if n := s.Len(); n < len(s.lanes) {
		s.lanes[n] = lane
		s.Add(bandwidth)
	}
}

// findRails computes rails and group after the lanes have changed.
func (l *link) findRails() {
	shares := l.conn.Lanes(wireup.RMABW)
	slices.SortStableFunc(shares, func(a, b handshake.Share) int { return cmp.Compare(b.Weight, a.Weight) })
	l.rails = railSet{}
	for _, s := range shares {
		if x := &l.lanes.All[s.Lane]; x.EP != nil && x.Active && !l.hasMovedRole(s.Lane, wireup.RMABW) {
			l.rails.add(uint8(s.Lane), s.Weight)
		}
	}
	l.group = l.e.w.groupOf(l.sharedDomains())
}

// needRails requests the lanes of rma_bw, once, if there are devices for more than one.
func (l *link) needRails() {
	if l.railsRequested {
		return
	}
	l.railsRequested = true
	if len(l.conn.Plan(wireup.RMABW)) > 1 {
		l.e.requestLane(wireup.RMABW)
	}
}

// sharedDomains returns the domains of the lanes in rails and of the lane of RMA, in the order of
// their indexes; nil if there are fewer than two rails.
func (l *link) sharedDomains() (domains region.Group) {
	x := l.lanes.Use[wireup.RMA]
	if l.rails.Len() < 2 || x == nil {
		return nil
	}
	domains = append(domains, x.Iface.domain)
	for i := range l.rails.Len() {
		if d := l.lanes.All[l.rails.lanes[i]].Iface.domain; !slices.Contains(domains, d) {
			domains = append(domains, d)
		}
	}
	slices.SortFunc(domains, func(a, b *region.Domain) int { return cmp.Compare(a.Index, b.Index) })
	return domains
}

// groupOf returns the index of a group in Worker.lanes.groups, to which it adds the group if
// needed; -1 if the group has fewer than two domains.
func (w *Worker) groupOf(g region.Group) int {
	if len(g) < 2 {
		return -1
	}
	i := slices.IndexFunc(w.lanes.groups, func(x region.Group) bool { return slices.Equal(x, g) })
	if i < 0 {
		i, w.lanes.groups = len(w.lanes.groups), append(w.lanes.groups, g)
	}
	return i
}
