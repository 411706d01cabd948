package handshake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// TestExplore: from every state that two sides reach within a number of events, in any order, and then
// without further faults, the sides agree on their lanes, or both have ended the connection.
func TestExplore(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has both sides")
	for _, tc := range []struct {
		name  string
		a, b  []string
		depth int
		roles []wireup.Role
	}{
		{"pairs", []string{"rc", "rc@x", "ud"}, []string{"rc", "rc@x", "ud"}, 6, []wireup.Role{wireup.RMA, wireup.AM}},
		{"iface", []string{"sm", "rc", "ud"}, []string{"sm", "rc", "ud"}, 6, []wireup.Role{wireup.RMA, wireup.AM}},
		{"rails", []string{"rc", "rc@x", "ud"}, []string{"rc", "rc@x", "ud"}, 6, []wireup.Role{wireup.RMABW, wireup.AM}},
		{"one side has more", []string{"rc", "rc", "ud"}, []string{"rc", "ud"}, 6, []wireup.Role{wireup.RMA}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			depth := tc.depth
			switch {
			case testing.Short():
				depth -= 2
			case !testenv.Sweep(): // one event more gives five times as many states
				depth--
			}
			x := explorer{t: t, roles: tc.roles, seen: map[string]int{}}
			a, b := link(t, workeraddr.Make(t, 1, tc.a...), workeraddr.Make(t, 2, tc.b...))
			for _, s := range []*side{a, b} {
				s.silent = true
				s.conn.p.Rails = selection.Rails{RMA: 2, AM: 2}
			}
			x.walk(&world{a: a, b: b}, depth)
			t.Logf("%d states", len(x.seen))
			require.Greater(t, len(x.seen), 100)
		})
	}
}

// world is one state of two sides.
type world struct {
	a, b    *side
	path    []string
	lostEnd bool // a DISCONNECT was lost, which is not retransmitted
}

// connected returns two sides with lanes for puts and active messages. set changes the parameters of both.
func connected(t *testing.T, a, b []string, set func(*ConnParams)) *world {
	w := &world{}
	w.a, w.b = link(t, workeraddr.Make(t, 1, a...), workeraddr.Make(t, 2, b...))
	for _, s := range []*side{w.a, w.b} {
		s.silent = true
		set(&s.conn.p)
	}
	w.a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	w.a.handle(Event{Kind: NeedLane, Role: wireup.AM})
	settle(t, w.a, w.b)
	return w
}

func (w *world) clone() *world {
	c := *w
	c.path = slices.Clone(w.path)
	c.a, c.b = w.a.clone(), w.b.clone()
	c.a.peer, c.b.peer = c.b, c.a
	return &c
}

func (s *side) clone() *side {
	c := *s
	conn := *s.conn
	conn.excluded, conn.acts = slices.Clone(conn.excluded), nil
	conn.replies, conn.confirms, conn.dropped = slices.Clone(conn.replies), slices.Clone(conn.confirms), slices.Clone(conn.dropped)
	conn.probed = nil // empty between events
	c.conn = &conn
	c.inbox = slices.Clone(s.inbox)
	c.fails = map[string]bool{}
	for k := range s.fails {
		c.fails[k] = true
	}
	return &c
}

// key contains all state on which later events depend.
func (w *world) key() string {
	var b strings.Builder
	for _, s := range []*side{w.a, w.b} {
		c := s.conn
		excluded := slices.Clone(c.excluded)
		for i := range excluded {
			excluded[i].retry.at -= c.now
		}
		fmt.Fprint(&b, c.lanes, c.idle, c.remoteEP, c.wanted, excluded, c.lost, c.requestSent, c.over, c.lastErr, s.err, s.lanes, len(s.fails))
		fmt.Fprint(&b, c.timer.running, c.timer.repeat-c.now, c.timer.pause, c.now-c.timer.since, "|")
		for _, m := range s.inbox {
			fmt.Fprint(&b, describe(m), ",")
		}
	}
	fmt.Fprint(&b, w.lostEnd)
	return b.String()
}

type explorer struct {
	t     *testing.T
	roles []wireup.Role
	seen  map[string]int // the depth that was left
}

func (x *explorer) walk(w *world, depth int) {
	key := w.key()
	left, known := x.seen[key]
	if known && left >= depth {
		return
	}
	x.seen[key] = depth
	if !known {
		x.rest(w.clone())
	}
	if depth == 0 {
		return
	}
	for _, e := range x.events(w) {
		next := w.clone()
		next.path = append(next.path, e.name)
		x.watch(next)
		e.do(next)
		x.walk(next, depth-1)
	}
}

type event struct {
	name string
	do   func(w *world)
}

// events returns the events that can happen in a state.
func (x *explorer) events(w *world) (all []event) {
	for _, name := range []string{"a", "b"} {
		s := w.side(name)
		add := func(what string, do func(w *world, s *side)) {
			all = append(all, event{name + " " + what, func(w *world) { do(w, w.side(name)) }})
		}
		if len(s.inbox) > 0 {
			add("deliver", func(_ *world, s *side) { s.deliver(x.t) })
			add("lose", func(w *world, s *side) {
				w.lostEnd = w.lostEnd || s.inbox[0].Type == Disconnect
				s.inbox = s.inbox[1:]
			})
		}
		if len(s.inbox) > 1 {
			add("overtake", func(_ *world, s *side) { s.inbox[0], s.inbox[1] = s.inbox[1], s.inbox[0] })
		}
		if s.conn.over {
			continue
		}
		for _, role := range x.roles {
			if !s.conn.wanted.Has(role) {
				add("need "+role.String(), func(_ *world, s *side) { s.handle(Event{Kind: NeedLane, Role: role}) })
			}
		}
		for i := range s.lanes {
			if s.lanes[i].open && !s.lanes[i].retired {
				add(fmt.Sprint("break ", i), func(_ *world, s *side) {
					s.handle(Event{Kind: LaneFailed, Lane: i, Status: ucs.StatusTimedOut})
				})
			}
		}
		if _, ok := s.conn.Deadline(); ok {
			add("wait", func(w *world, s *side) {
				at, _ := s.conn.Deadline()
				pass(w.a, w.b, at-s.now)
			})
		}
		if len(s.fails) == 0 {
			add("fail connect", func(_ *world, s *side) { s.fails["connect rc"] = true })
			if s.conn.p.Idle {
				add("has operations", func(_ *world, s *side) { s.fails["check idle"] = true })
			}
		}
		if s.conn.p.Idle && s.conn.idle.state <= idleQuiesced {
			add("rest", func(_ *world, s *side) { s.handle(Event{Kind: NoOperations}) })
		}
		add("close", func(_ *world, s *side) { s.handle(Event{Kind: Closed}) })
	}
	return all
}

func (w *world) side(name string) *side {
	if name == "a" {
		return w.a
	}
	return w.b
}

// watch checks that no action opens or proposes an excluded pair.
func (x *explorer) watch(w *world) {
	for _, s := range []*side{w.a, w.b} {
		s.check = func(act *Action) {
			switch {
			case s.conn.p.Idle && act.Kind == CloseLane && act.Status == ucs.StatusOK && s.usedByPeer(act.Lane):
				x.fail(w, "%s closes lane %d, which the other side uses", s.name, act.Lane)
			case act.Kind == OpenLane && s.conn.Excluded(act.Local, act.Remote) && !s.conn.lanes[act.Lane].trial:
				x.fail(w, "%s opens an excluded pair", s.name)
			case act.Kind == SendMsg && act.Msg.Type == Request:
				for _, l := range act.Msg.Lanes {
					if s.conn.Excluded(int(l.Src), int(l.Dst)) && l.Status == ucs.StatusOK {
						x.fail(w, "%s proposes an excluded pair", s.name)
					}
				}
			}
		}
	}
}

// usedByPeer reports whether the peer uses the other end of a lane.
func (s *side) usedByPeer(n int) bool {
	l := &s.lanes[n]
	if l.addr == "" { // the transport endpoints of the two sides are independent
		return false
	}
	k := s.peer.laneWith(l.peer)
	return k >= 0 && s.peer.lanes[k].peer == l.addr && s.peer.lanes[k].uses != 0
}

func (x *explorer) fail(w *world, format string, args ...any) {
	x.t.Helper()
	require.Fail(x.t, fmt.Sprintf(format, args...), "after %s\n%s\n%s", strings.Join(w.path, ", "), w.a.state(), w.b.state())
}

// rest delivers all messages and advances time until no handshake is in progress.
func (x *explorer) rest(w *world) {
	x.watch(w)
	for range 100 {
		for len(w.a.inbox)+len(w.b.inbox) > 0 {
			for _, s := range []*side{w.a, w.b} {
				if len(s.inbox) > 0 {
					s.deliver(x.t)
				}
			}
		}
		if w.done() {
			x.agree(w)
			return
		}
		pass(w.a, w.b, 10*time.Second)
	}
	x.fail(w, "a handshake is still in progress")
}

func (w *world) done() bool {
	for _, s := range []*side{w.a, w.b} {
		waits := s.conn.timer.running && (s.conn.timer.repeat != never || s.conn.timeoutApplies())
		for i := range s.conn.excluded {
			x := &s.conn.excluded[i]
			waits = waits || x.retry.enabled && s.conn.rolesToRegain(x) != 0
		}
		if !s.conn.over && (!s.conn.Quiet() || waits) && !w.other(s).conn.over {
			return false
		}
	}
	return true
}

func (w *world) other(s *side) *side {
	if s == w.a {
		return w.b
	}
	return w.a
}

// agree checks a state at rest.
func (x *explorer) agree(w *world) {
	if w.a.conn.over || w.b.conn.over {
		for _, s := range []*side{w.a, w.b} {
			o := w.other(s)
			if o.conn.over && !s.conn.over && !w.lostEnd && (s.conn.remoteEP != 0 && o.conn.remoteEP != 0) {
				x.fail(w, "%s does not know that the connection has ended", s.name)
			}
		}
		return
	}
	for _, s := range []*side{w.a, w.b} {
		o := w.other(s)
		for _, p := range s.conn.excluded {
			if p.peer != peerAware && s.conn.remoteEP != 0 {
				x.fail(w, "%s has not reported to the other side that %d-%d is excluded", s.name, p.local, p.remote)
			}
		}
		for role := range wireup.Aux {
			if s.conn.wanted.Has(role) && !sharedRoles.Has(role) && len(s.conn.Lanes(role)) == 0 {
				x.fail(w, "%s has no lane for %s", s.name, role)
			}
		}
		for i := range s.conn.lanes {
			l := &s.conn.lanes[i]
			if l.state != laneFree && s.lanes[i].uses != l.active {
				x.fail(w, "%s uses lane %d for %s, not for %s", s.name, i, s.lanes[i].uses, l.active)
			}
			if l.viaIface && l.active&amRoles != 0 && o.conn.remoteEP == 0 {
				x.fail(w, "the other side does not know the sender of lane %d of %s", i, s.name)
			}
			if l.active == 0 && !l.isIdle() || l.viaIface {
				continue // the peer may not have this lane
			}
			k := o.conn.find(int(l.remote), int(l.local))
			if k < 0 || o.conn.lanes[k].state != laneActive {
				x.fail(w, "lane %d of %s is not active at the other side", i, s.name)
			}
			if string(o.conn.lanes[k].epAddr) != s.lanes[i].peer || o.lanes[k].peer != string(l.epAddr) {
				x.fail(w, "lane %d of %s is connected to another one", i, s.name)
			}
		}
	}
}
