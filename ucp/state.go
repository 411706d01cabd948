package ucp

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// State describes what the worker waits for: the lanes of each EP, its credit in both directions, its operations in progress
// and its queued messages; then posted receives, unexpected messages, and all counters of Stats that are not zero. It is a
// diagnostic for people who look for the cause of a hang. The text has several lines and may change with each version. State
// allocates and makes no progress. Only the goroutine that owns the worker may call it, also in a callback and after Close.
func (w *Worker) State() string {
	var s stateText
	s.line("worker 0x%x: endpoints: %d; operations that peers may reply to: %d", w.net.addr.UUID(), w.eps.Len(), w.pool.remote.Len())
	for e := range w.eps.All() {
		s.endpoint(e)
	}
	s.tags(w)
	for path, n := range w.stats.root.Snapshot().All() {
		if n != 0 {
			s.line("  counter %s %d", path, n)
		}
	}
	return s.String()
}

// stateText builds the text of State.
type stateText struct{ strings.Builder }

func (s *stateText) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

var epStateNames = [...]string{epOpen: "open", epClosing: "closing", epFailed: "failed", epClosed: "closed"}

// String returns the state in one word.
func (s epState) String() string { return epStateNames[s] }

func (s *stateText) endpoint(e *EP) {
	s.line("  endpoint %#x to worker 0x%x: %s", e.id, e.peer.Addr.UUID(), strings.Join(e.conditions(), ", "))
	s.lanes(e)
	s.operations("in progress", e.ops.all)
	if q := e.waiting; !q.Empty() {
		s.operations("waiting for a lane, credit or a fence", q.All)
	}
	if m := e.msgs; m != nil {
		s.messages(m)
	}
}

// conditions returns the state of the EP and the conditions for which it waits.
func (e *EP) conditions() []string {
	all := []string{e.state.String()}
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(e.failed.err != nil, "because of: %v", e.failed.err)
	add(e.closing.aborting != ucs.StatusOK, "aborting: %v", e.closing.aborting)
	add(e.origin.passive, "made by the peer")
	add(e.counts.direct > 0, "%d operations in one call", e.counts.direct)
	add(e.counts.unposted > 0, "%d not posted completely", e.counts.unposted)
	add(e.fence.count > 0, "%d fences", e.fence.count)
	add(e.roles.needed != 0, "needs lanes for %v", e.roles.needed)
	add(e.scheduled, "work for the next progress")
	add(e.link == nil, "not connected")
	add(e.link != nil && e.link.idle.closed, "idle: lanes closed")
	return all
}

func (s *stateText) lanes(e *EP) {
	if e.link == nil {
		return
	}
	for _, x := range e.laneInfos() {
		s.line("    lane %d: %s %s for %s, active %t, connected %t, retired %t, %d operations in its pending queue",
			x.Number, x.Transport, x.Device, strings.Join(x.Roles, "|"), x.Active, x.Connected, x.Retired, x.Pending)
	}
	if l := e.link; l.answers > 0 || len(l.undecided) > 0 || l.losses > 0 {
		s.line("    %d replies to send, %d transfers to repeat or fail, %d broken lanes", l.answers, len(l.undecided), l.losses)
	}
}

func (s *stateText) messages(m *messages) {
	due := m.TotalDue()
	s.line("    credit granted by the peer: %d of %d bytes left, %d credit messages received", m.Credit, m.Most, m.credits.got)
	s.line("    credit granted to the peer: %d bytes, %d held by messages, %d to return, returned from %d on, %d credit messages sent",
		m.Size, m.Held, due, m.Batch, m.credits.sent)
	s.operations("sent messages that wait for a reply of the peer", m.e.awaited.all)
	for in := m.inbound; in != nil; in = in.next {
		s.line("    arriving in parts: message %d, %d of %d bytes", in.id, in.got, in.total)
	}
	announced := 0
	for a := m.rndv.first; a != nil; a = a.next {
		announced++
	}
	if announced > 0 {
		s.line("    %d messages announced by the peer (RTS) and not received", announced)
	}
	s.tuples(m)
	if q := m.tag.queue; q != nil {
		s.line("    queue of tagged messages: %d queued, offered %t, reply due %t, blocked %t", q.tags.Unexpected(), q.offered != nil, q.replyQueued, q.blocked)
	}
	if b := m.tag.sender; b != nil {
		s.line("    the peer lacks credit for tagged messages: %t, query outstanding %t, query to send %t", b.blocked, b.query.Kind != wire.QueryNone, b.unsent)
	}
	if m.sending != nil {
		s.line("    a send of stream data is in progress: %v", m.sending.describe())
	}
}

// tuples describes what messages wait for if tuple queues are enabled.
func (s *stateText) tuples(m *messages) {
	l := m.tuple
	if l == nil {
		return
	}
	if n, open := l.out.Waiting(); n > 0 || !open {
		s.line("    tuple queues: %d messages wait for receives of the peer, a queue opens or closes: %t", n, !open)
	}
}

// maxNamed is the maximum number of operations, receives or messages that a list of State describes one by one.
const maxNamed = 3

// operations writes the number of operations of each type and describes the oldest ones. It writes nothing if there are none.
func (s *stateText) operations(what string, all func(func(*Request) bool)) {
	var oldest []string
	total := 0
	for r := range all {
		if total++; total <= maxNamed {
			oldest = append(oldest, r.describe())
		}
	}
	if total == 0 {
		return
	}
	var kinds []string
	for _, c := range countOperations(all) {
		kinds = append(kinds, fmt.Sprintf("%s %d", c.Op, c.N))
	}
	s.line("    %s: %d (%s); the oldest: %s", what, total, strings.Join(kinds, ", "), strings.Join(oldest, "; "))
}

// describe returns a text with the operation and its progress.
func (r *Request) describe() string {
	text := r.action().String()
	for _, f := range [...]struct {
		flag reqFlags
		text string
	}{
		{reqWaiting, "waits"}, {reqQueued, "in the pending queue"}, {reqUnposted, "not posted completely"}, {reqPosted, "posted"},
		{reqDone, "done"},
	} {
		if r.flags&f.flag != 0 {
			text += ", " + f.text
		}
	}
	if r.msg != nil && r.msg.recalls {
		text += ", canceled"
	}
	if r.comp.Count > 0 {
		text += fmt.Sprintf(", %d completions to come", r.comp.Count)
	}
	return text
}

func (s *stateText) tags(w *Worker) {
	posted, oldest := 0, []string(nil)
	for r := range w.tag.table.Receives() {
		if posted++; posted <= maxNamed {
			oldest = append(oldest, fmt.Sprintf("%#x mask %#x", r.Tag, r.Mask))
		}
	}
	if posted > 0 {
		s.line("  posted receives of tags: %d; the oldest: %s", posted, strings.Join(oldest, "; "))
	}
	kept, first := 0, []string(nil)
	for u := range w.tag.table.Messages() {
		if kept++; kept <= maxNamed {
			first = append(first, fmt.Sprintf("%#x, %s", u.Tag, bytesText(u.Owner.n)))
		}
	}
	if kept > 0 {
		s.line("  unexpected tagged messages: %d; the oldest: %s", kept, strings.Join(first, "; "))
	}
	if n := len(w.tag.blocked); n > 0 {
		s.line("  peers that lack credit for tagged messages: %d", n)
	}
	if w.messages.leftBytes > 0 {
		s.line("  messages of peers that have gone: %d bytes", w.messages.leftBytes)
	}
}
