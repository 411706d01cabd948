package handshake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// side is one end of a simulated connection: it executes the actions.
type side struct {
	name  string
	conn  *Conn
	fails map[string]bool // "open rc" or "connect rc": the next such action fails; "check": the next CheckIdle finds operations

	inbox  []*Msg
	peer   *side
	log    []string
	silent bool
	check  func(act *Action) // sees each action first; may be nil
	slow   bool              // LaneQuiesced and LaneDrained wait in later
	later  []Event

	lanes [MaxLanes]simLane
	err   ucs.Status
	next  int
	now   time.Duration
}

type simLane struct {
	open                  bool
	transport, addr, peer string
	uses                  Roles
	retired               bool
}

// simTimeout is how long sides wait for each other.
const simTimeout = 20 * time.Second

// link makes two connections that do not know of each other.
func link(t testing.TB, a, b *wireup.Address) (*side, *side) {
	t.Helper()
	mk := func(name string, local, remote *wireup.Address, ep uint64) *side {
		packed, err := local.Pack()
		require.NoError(t, err)
		return &side{name: name, fails: map[string]bool{}, conn: NewConn(ConnParams{
			Local: local, Remote: remote, Reach: workeraddr.Reach(local, remote), PackedLocal: packed, LocalEP: ep,
			Timeout: simTimeout,
		})}
	}
	x, y := mk("a", a, b, 100), mk("b", b, a, 200)
	x.peer, y.peer = y, x
	return x, y
}

func (s *side) logf(format string, args ...any) {
	if !s.silent {
		s.log = append(s.log, s.name+": "+fmt.Sprintf(format, args...))
	}
}

// handle passes an event to the Conn, executes the actions, and handles the events that they cause.
func (s *side) handle(ev Event) {
	events := []Event{ev}
	for len(events) > 0 {
		ev, events = events[0], events[1:]
		ev.Now = s.now
		for _, act := range append([]Action(nil), s.conn.Handle(ev)...) {
			if s.check != nil {
				s.check(&act)
			}
			if next, ok := s.carryOut(act); ok {
				events = append(events, next)
			}
		}
	}
}

func (s *side) carryOut(act Action) (Event, bool) {
	l := &s.lanes[act.Lane]
	switch act.Kind {
	case SendMsg:
		again := ""
		if act.Again {
			again = " again"
		}
		s.logf("send%s %s", again, describe(act.Msg))
		s.peer.inbox = append(s.peer.inbox, act.Msg)
	case OpenLane:
		return s.openLane(act)
	case ConnectLane:
		s.logf("connect lane %d to %q", act.Lane, act.EPAddr)
		if s.failing("connect", l.transport) {
			return Event{Kind: LaneFailed, Lane: act.Lane, Status: ucs.StatusNoMemory}, true
		}
		l.peer = string(act.EPAddr)
		return Event{Kind: LaneConnected, Lane: act.Lane}, true
	case ActivateLane:
		s.logf("activate lane %d for %s", act.Lane, act.Roles)
		s.cancelQuiesced(act.Lane)
		l.uses |= act.Roles
	case RetireLane:
		s.logf("retire lane %d: %s", act.Lane, act.Status)
		l.uses, l.retired = 0, true
	case CloseLane:
		s.logf("close lane %d", act.Lane)
		s.cancelQuiesced(act.Lane)
		*l = simLane{}
	case ProbeLane:
		s.logf("probe lane %d", act.Lane)
		if s.connected(l) {
			s.peer.inbox = append(s.peer.inbox, act.Msg)
		}
	case ReturnLane:
		s.logf("lane %d returns", act.Lane)
	case QuiesceLane:
		s.logf("quiesce lane %d for %s", act.Lane, act.Roles)
		l.uses &^= act.Roles
		return s.nowOrLater(Event{Kind: LaneQuiesced, Lane: act.Lane})
	case DrainLane:
		s.logf("drain %d-%d", act.Local, act.Remote)
		return s.nowOrLater(Event{Kind: LaneDrained, Local: act.Local, Remote: act.Remote, Status: act.Status})
	case CheckIdle:
		ev := Event{Kind: IdleChecked}
		if s.failing("check", "idle") {
			ev.Status = ucs.StatusInProgress
		}
		s.logf("check idle: %s", ev.Status)
		return ev, true
	case WentIdle:
		s.logf("went idle")
	case KeepLanes:
		s.logf("keep lanes: %s", act.Status)
	case LoseRoles:
		s.logf("lose %s: %s", act.Roles, act.Status)
	case FailEP:
		s.logf("fail: %s", strings.TrimPrefix(act.Why+": "+act.Status.String(), ": "))
		s.err = act.Status
	}
	return Event{}, false
}

// nowOrLater returns the event, or puts it in later.
func (s *side) nowOrLater(ev Event) (Event, bool) {
	if s.slow {
		s.later = append(s.later, ev)
	}
	return ev, !s.slow
}

// cancelQuiesced removes LaneQuiesced of a lane from later.
func (s *side) cancelQuiesced(lane int) {
	s.later = slices.DeleteFunc(s.later, func(ev Event) bool { return ev.Kind == LaneQuiesced && ev.Lane == lane })
}

// connected reports whether messages sent over a lane arrive at the peer.
func (s *side) connected(l *simLane) bool {
	if l.addr == "" { // connects to the iface
		return true
	}
	k := s.peer.laneWith(l.peer)
	return k >= 0 && s.peer.lanes[k].peer == l.addr
}

func (s *side) openLane(act Action) (Event, bool) {
	tl := s.conn.p.Local.Resources[act.Local].Transport
	s.logf("open lane %d: %s %d-%d", act.Lane, tl, act.Local, act.Remote)
	s.lanes[act.Lane] = simLane{open: true, transport: tl}
	if s.failing("open", tl) {
		return Event{Kind: LaneFailed, Lane: act.Lane, Status: ucs.StatusNoMemory}, true
	}
	ev := Event{Kind: LaneOpened, Lane: act.Lane}
	if !act.ViaIface {
		s.next++
		ev.EPAddr = fmt.Appendf(nil, "%s%d", s.name, s.next)
		s.lanes[act.Lane].addr = string(ev.EPAddr)
	}
	return ev, true
}

func (s *side) failing(what, tl string) bool {
	key := what + " " + tl
	f := s.fails[key]
	delete(s.fails, key)
	return f
}

// pass advances the time of both sides by d, with the TimePassed events that are due.
func pass(a, b *side, d time.Duration) {
	end := a.now + d
	for {
		next := end
		for _, s := range []*side{a, b} {
			if at, ok := s.conn.Deadline(); ok {
				next = min(next, at)
			}
		}
		a.now, b.now = next, next
		due := false
		for _, s := range []*side{a, b} {
			if at, ok := s.conn.Deadline(); ok && at <= next {
				due = true
				s.handle(Event{Kind: TimePassed})
			}
		}
		if next == end && !due {
			return
		}
	}
}

// deliver delivers the oldest message, packed and unpacked.
func (s *side) deliver(t testing.TB) {
	t.Helper()
	require.NotEmpty(t, s.inbox, "no message for %s", s.name)
	m := s.inbox[0]
	s.inbox = s.inbox[1:]
	s.receive(t, m)
}

func (s *side) receive(t testing.TB, m *Msg) {
	t.Helper()
	got, err := UnpackMsg(m.Append(nil))
	require.NoError(t, err)
	s.handle(Event{Kind: MsgReceived, Msg: got})
}

func describe(m *Msg) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d>%d", m.Type, m.SrcEP, m.DstEP)
	for _, l := range m.Lanes {
		fmt.Fprintf(&b, " [%d-%d %s", l.Src, l.Dst, l.Roles)
		switch {
		case l.Status == ucs.StatusOK:
		case m.Type >= Probe:
			fmt.Fprintf(&b, " number %d", l.Status)
		case m.Type == Request:
			fmt.Fprintf(&b, " trial %d", l.Status)
		default:
			fmt.Fprintf(&b, " rejected: %s", l.Status)
		}
		if len(l.EPAddr) > 0 {
			fmt.Fprintf(&b, " ep=%s", l.EPAddr)
		}
		b.WriteByte(']')
	}
	if len(m.Addr) > 0 {
		b.WriteString(" +address")
	}
	return b.String()
}
