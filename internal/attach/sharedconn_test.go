package attach

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// sockets is how many sockets this process has open.
func sockets(t testing.TB) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range list {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && len(target) > 7 && target[:7] == "socket:" {
			n++
		}
	}
	return n
}

// untilSockets waits until this process has at most n sockets open.
func untilSockets(t testing.TB, n int) {
	t.Helper()
	testenv.ProgressWithin(t, watchdog, func() bool { return sockets(t) <= n })
}

// untilOpenFiles waits until this process has at most n descriptors: connections are closed in the background, after
// what is queued has been sent.
func untilOpenFiles(t testing.TB, n int) {
	t.Helper()
	testenv.ProgressWithin(t, watchdog, func() bool { return testenv.OpenFiles(t) <= n })
}

// pair is both ends of a link.
type pair struct {
	out *Outbound
	in  *Inbound
}

func (s *station) pairWith(t testing.TB, to *station) pair {
	t.Helper()
	return pair{s.dial(t, to.gid), within(t, to.in, "inbound link")}
}

// works makes sure that both ends of a link share memory, and are up.
func (p pair) works(t testing.TB) {
	t.Helper()
	p.out.Seg.Bytes()[0]++
	assert.Equal(t, p.out.Seg.Bytes()[0], p.in.Seg.Bytes()[0])
	assert.True(t, p.out.Up())
	assert.True(t, p.in.Up())
}

// TestShared_Descriptors: links within a process take two sockets together, however many there are and whichever side
// dials, and none when they are closed.
func TestShared_Descriptors(t *testing.T) {
	const links = 20
	a, b := newStation(t, nil), newStation(t, nil)
	before := sockets(t)
	var all []pair
	for range links {
		all = append(all, a.pairWith(t, b), b.pairWith(t, a))
	}
	untilSockets(t, before+2)
	for _, p := range all {
		p.works(t)
	}
	for i, p := range all {
		closer, other := p.out.Link, p.in.Link
		if i%3 == 0 {
			closer, other = other, closer
		}
		require.NoError(t, closer.Close())
		within(t, other.Done(), "end of the link")
		assert.True(t, other.PeerStays())
		require.NoError(t, other.Close())
		for _, p := range all[i+1:] {
			p.works(t)
		}
	}
	untilSockets(t, before)
}

// TestShared_DialsAtOnce: many links that are dialed at the same time, from both sides, end up on few sockets.
func TestShared_DialsAtOnce(t *testing.T) {
	const links = 30
	a, b := newStation(t, nil), newStation(t, nil)
	before := sockets(t)
	var wg sync.WaitGroup
	for _, s := range []struct{ from, to *station }{{a, b}, {b, a}} {
		for range links {
			wg.Go(func() {
				_, err := s.from.Dial(t.Context(), s.to.gid)
				assert.NoError(t, err)
			})
		}
	}
	wg.Wait()
	untilSockets(t, before+4) // each end may have chosen another one of the first two
	for range links {
		assert.True(t, within(t, a.in, "link to a").Up())
		assert.True(t, within(t, b.in, "link to b").Up())
	}
}

// TestShared_Processes: links to another process, from both sides, take two sockets at most, and all end when
// that is killed.
func TestShared_Processes(t *testing.T) {
	const links = 10
	a, c := newStation(t, nil), startStation(t)
	before := sockets(t)
	var all []*Link
	for range links {
		c.Tell(t, "dial %x", a.gid)
		require.Equal(t, "up", c.Line(t))
		all = append(all, within(t, a.in, "inbound link").Link, a.dial(t, c.gid).Link)
	}
	untilSockets(t, before+2)
	for _, l := range all {
		require.True(t, l.Up())
	}
	require.NoError(t, c.Process.Kill())
	for _, l := range all {
		within(t, l.Done(), "death of the peer")
		assert.False(t, l.PeerStays())
		require.NoError(t, l.Close())
	}
	untilSockets(t, before)
}

// TestShared_PortCloses: the links of a port end with it, and those of another port of the process do not.
func TestShared_PortCloses(t *testing.T) {
	a, b, c := newStation(t, nil), newStation(t, nil), newStation(t, nil)
	before := sockets(t)
	ends, stays := a.pairWith(t, b), a.pairWith(t, c)
	untilSockets(t, before+2)
	require.NoError(t, b.Port.Close())
	within(t, ends.out.Done(), "end of the link")
	assert.False(t, ends.out.PeerStays())
	stays.works(t)
	a.pairWith(t, c).works(t)
}

// TestShared_HangUp: an acceptor hangs up on one of the links of a connection, and has it until the dialer closes it.
func TestShared_HangUp(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	before := sockets(t)
	other, p := a.pairWith(t, b), a.pairWith(t, b)
	untilSockets(t, before+2)
	p.in.HangUp()
	within(t, p.out.Done(), "hang-up")
	assert.False(t, p.out.PeerStays())
	assert.True(t, p.in.Up())
	p.out.Seg.Bytes()[1] = 9
	assert.EqualValues(t, 9, p.in.Seg.Bytes()[1], "still mapped")
	require.NoError(t, p.out.Close())
	within(t, p.in.Done(), "end of the link")
	require.NoError(t, p.in.Close())
	other.works(t)
}

// fake is an end of a connection whose other end is a process that is made up.
type fake struct {
	conn *net.UnixConn // of that process
	*Link
}

// fakeLink returns a link of process pid; dialed: by this side.
func fakeLink(t testing.TB, s *station, pid int, id linkID, dialed bool) *fake {
	t.Helper()
	user := uint32(os.Geteuid())
	return fakeLinkOf(t, s, peer{pid: pid, uid: user, own: user}, id, dialed, true)
}

// fakeLinkOf is fakeLink with a given process. shares: it says so.
func fakeLinkOf(t testing.TB, s *station, who peer, id linkID, dialed, shares bool) *fake {
	t.Helper()
	conn, theirs, _ := connPair(t)
	l := newLink(s.Port, conn, who, anyGID())
	l.id, l.dialed, l.peerShares = id, dialed, shares
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, s.establish(l))
	return &fake{theirs, l}
}

func (f *fake) sends(t testing.TB, kind linkMsgKind, id linkID) {
	t.Helper()
	_, err := f.conn.Write(linkMsg{kind, id}.encode())
	require.NoError(t, err)
}

// receives is the next message that the process gets.
func (f *fake) receives(t testing.TB) linkMsg {
	t.Helper()
	var b [linkMsgLen + 1]byte
	n, err := f.conn.Read(b[:])
	require.NoError(t, err)
	m, err := decodeLinkMsg(b[:n])
	require.NoError(t, err)
	return m
}

// carry has f's connection carry another link, as one that has moved there.
func (f *fake) carry(s *Port, id linkID) *Link {
	l := newLink(s, nil, peer{pid: f.PeerPID, uid: f.PeerUID}, anyGID())
	l.id, l.ownUID = id, f.ownUID
	processes.Lock()
	defer processes.Unlock()
	l.shared = f.shared
	f.shared.links[id] = l
	return l
}

// handled waits until what the process has said so far was handled.
func (f *fake) handled(t testing.TB) {
	t.Helper()
	mark := f.carry(f.port, newLinkID())
	f.sends(t, msgClosed, mark.id)
	within(t, mark.Done(), "end of the link")
	processes.Lock()
	defer unlockProcesses()
	f.shared.remove(mark)
}

// TestHostile_LinksOfOthers: a process that names links of another one, and then moves and ends them, reaches none.
func TestHostile_LinksOfOthers(t *testing.T) {
	s := newStation(t, nil)
	victim, second := fakeLink(t, s, 1, 11, false), fakeLink(t, s, 1, 12, true)
	liar := fakeLink(t, s, 2, 21, false)
	for _, id := range []linkID{11, 12} {
		for kind := msgMove; kind <= msgGone; kind++ {
			liar.sends(t, kind, id)
		}
	}
	liar.handled(t)
	assert.True(t, victim.Up())
	assert.True(t, second.Up())
	assert.True(t, liar.Up(), "it may have crossed a close")

	victim.sends(t, msgClosed, 11)
	within(t, victim.Done(), "end of the link")
	assert.True(t, second.Up())
}

// TestHostile_StrayMessages: a process that sends messages about links that are not there loses its links, and only
// those.
func TestHostile_StrayMessages(t *testing.T) {
	s := newStation(t, nil)
	victim, liar := fakeLink(t, s, 1, 11, false), fakeLink(t, s, 2, 21, false)
	for range strayBase + strayLimit + 1 {
		liar.sends(t, msgClosed, 11)
	}
	within(t, liar.Done(), "end of the link")
	assert.False(t, liar.PeerStays())
	assert.True(t, victim.Up())
}

// TestHostile_LinkMessages: what no peer that keeps the rules sends ends the links of its connection, and no other
// ones.
func TestHostile_LinkMessages(t *testing.T) {
	for name, tt := range map[string]func(t *testing.T, dialed, accepted *fake){
		"garbage":                 func(t *testing.T, d, _ *fake) { _, _ = d.conn.Write([]byte("garbage")) },
		"too long":                func(t *testing.T, d, _ *fake) { _, _ = d.conn.Write(make([]byte, 1000)) },
		"type that is none":       func(t *testing.T, d, _ *fake) { d.sends(t, 99, 1) },
		"hangs up as an acceptor": func(t *testing.T, _, a *fake) { a.sends(t, msgLeft, a.id) },
		"moved without a move":    func(t *testing.T, d, _ *fake) { d.sends(t, msgMoved, d.id) },
		"moved by an acceptor":    func(t *testing.T, _, a *fake) { a.sends(t, msgMoved, a.id) },
		"moves to where it is":    func(t *testing.T, _, a *fake) { a.sends(t, msgMove, a.id) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStation(t, nil)
			dialed, accepted, victim := fakeLink(t, s, 1, 11, true), fakeLink(t, s, 2, 21, false), fakeLink(t, s, 3, 31, false)
			tt(t, dialed, accepted)
			ended := dialed
			if dialed.Up() {
				testenv.ProgressWithin(t, watchdog, func() bool { return !dialed.Up() || !accepted.Up() })
			}
			if dialed.Up() {
				ended = accepted
			}
			assert.False(t, ended.Up())
			assert.False(t, ended.PeerStays())
			assert.True(t, victim.Up())
			require.NoError(t, ended.Close())
			_, _ = ended.conn.Read(make([]byte, linkMsgLen)) // the last word of this side
			_, err := ended.conn.Read(make([]byte, 1))
			assert.Error(t, err, "hung up")
		})
	}
}

// moving returns two links of a process, of which this side has asked the second one to move to the connection of
// the first one.
func moving(t *testing.T, s *station) (first, second *fake) {
	t.Helper()
	first, second = fakeLink(t, s, 1, 11, true), fakeLink(t, s, 1, 12, true)
	require.Equal(t, linkMsg{msgMove, 12}, first.receives(t))
	return first, second
}

// TestMove: a link moves when the peer says so on the connection that carried the link before.
func TestMove(t *testing.T) {
	s := newStation(t, nil)
	first, second := moving(t, s)
	second.sends(t, msgMoved, 12)
	_, err := second.conn.Read(make([]byte, 1))
	assert.Error(t, err, "this side has closed the connection")
	assert.True(t, second.Up())
	first.sends(t, msgClosed, 12)
	within(t, second.Done(), "end of the link")
	assert.True(t, second.PeerStays())
	assert.True(t, first.Up())
}

// TestMove_LinkEndsBeforeConfirmation: what is said on the new connection counts only when the peer has confirmed the
// move on the old one, as the process at the new one may be another one.
func TestMove_LinkEndsBeforeConfirmation(t *testing.T) {
	s := newStation(t, nil)
	first, second := moving(t, s)
	first.sends(t, msgClosed, 12)
	first.handled(t)
	assert.True(t, second.Up())
	second.sends(t, msgMoved, 12)
	within(t, second.Done(), "end of the link")
	assert.True(t, second.PeerStays())
	assert.True(t, first.Up())
}

// TestMove_ConnectionFails: a link stays on its connection while its move is not confirmed.
func TestMove_ConnectionFails(t *testing.T) {
	s := newStation(t, nil)
	first, second := moving(t, s)
	require.NoError(t, first.conn.Close())
	within(t, first.Done(), "death of the peer")
	assert.True(t, second.Up())
	second.sends(t, msgClosed, 12)
	within(t, second.Done(), "end of the link")
	assert.True(t, second.PeerStays())
}

// TestMove_Again: links whose move was not confirmed move to the connection that is the oldest one then.
func TestMove_Again(t *testing.T) {
	s := newStation(t, nil)
	first, second := moving(t, s)
	third := fakeLink(t, s, 1, 13, true)
	require.Equal(t, linkMsg{msgMove, 13}, first.receives(t))
	require.NoError(t, first.conn.Close()) // as a peer does that had no other link there
	require.Equal(t, linkMsg{msgMove, 13}, second.receives(t))
	third.sends(t, msgMoved, 13)
	_, err := third.conn.Read(make([]byte, 1))
	assert.Error(t, err, "this side has closed the connection")
	assert.True(t, second.Up())
	assert.True(t, third.Up())
	second.sends(t, msgClosed, 13)
	within(t, third.Done(), "end of the link")
	assert.True(t, second.Up())
}

// TestMove_PeerDies: a link ends if the peer has moved it to a connection that is lost.
func TestMove_PeerDies(t *testing.T) {
	s := newStation(t, nil)
	first, second := moving(t, s)
	require.NoError(t, first.conn.Close())
	within(t, first.Done(), "death of the peer")
	second.sends(t, msgMoved, 12)
	within(t, second.Done(), "end of the link")
}

// TestMove_ClosedMeanwhile: both connections carry CLOSED, as the peer may have moved the link or not.
func TestMove_ClosedMeanwhile(t *testing.T) {
	s := newStation(t, nil)
	first, second := moving(t, s)
	require.NoError(t, second.Close())
	assert.Equal(t, linkMsg{msgClosed, 12}, first.receives(t))
	assert.Equal(t, linkMsg{msgClosed, 12}, second.receives(t))
	first.sends(t, msgClosed, 12) // crosses
	first.handled(t)
	assert.True(t, first.Up())
}

// TestMove_Accepted: the acceptor's side.
func TestMove_Accepted(t *testing.T) {
	s := newStation(t, nil)
	first, second, third := fakeLink(t, s, 1, 11, false), fakeLink(t, s, 1, 12, false), fakeLink(t, s, 1, 13, true)
	first.sends(t, msgMove, 12)
	assert.Equal(t, linkMsg{msgMoved, 12}, second.receives(t))
	_, err := second.conn.Read(make([]byte, 1))
	assert.Error(t, err, "this side has closed the connection")
	assert.True(t, second.Up())

	first.sends(t, msgMove, 13) // a link that this side has dialed
	first.handled(t)
	assert.True(t, third.Up())

	second.HangUp()
	assert.Equal(t, linkMsg{msgMove, 13}, first.receives(t))
	assert.Equal(t, linkMsg{msgLeft, 12}, first.receives(t))
	assert.True(t, second.Up())
	first.sends(t, msgGone, 12)
	within(t, second.Done(), "end of the link")
	assert.True(t, first.Up())

	third.sends(t, msgMove, 12) // it has moved once, and has ended
	third.handled(t)
	assert.True(t, third.Up())
}

// TestMove_PeerDoesNotRead: a link stays where it is if MOVED cannot be sent.
func TestMove_PeerDoesNotRead(t *testing.T) {
	s := newStation(t, nil)
	first, second := fakeLink(t, s, 1, 11, false), fakeLink(t, s, 1, 12, false)
	processes.Lock()
	n := 0
	for ; second.shared.trySend(linkMsg{msgClosed, 99}); n++ {
	}
	processes.Unlock()
	first.sends(t, msgMove, 12)
	first.handled(t)
	for range n {
		require.Equal(t, linkMsg{msgClosed, 99}, second.receives(t))
	}
	second.sends(t, msgClosed, 12)
	within(t, second.Done(), "end of the link")
	assert.True(t, second.PeerStays())
	assert.True(t, first.Up())
}

// TestMove_NoPID: connections to processes that the kernel does not name are not shared.
func TestMove_NoPID(t *testing.T) {
	s := newStation(t, nil)
	first, second, third := fakeLink(t, s, 0, 11, true), fakeLink(t, s, 0, 12, true), fakeLink(t, s, 0, 13, false)
	first.sends(t, msgMove, 13)
	first.handled(t)
	require.NoError(t, second.Close())
	assert.Equal(t, linkMsg{msgClosed, 12}, second.receives(t))
	require.NoError(t, third.conn.Close())
	within(t, third.Done(), "death of the peer")
	assert.True(t, first.Up())
	require.NoError(t, first.Close())
	assert.Equal(t, linkMsg{msgClosed, 11}, first.receives(t), "it was asked for no move")
}

// TestMove_PeerDoesNotShare: an acceptor that does not see the PID of this process is not asked to move links.
func TestMove_PeerDoesNotShare(t *testing.T) {
	s := newStation(t, nil)
	first := fakeLink(t, s, 1, 11, true)
	var second *fake
	for i := range linkID(2 * strayBase) {
		second = fakeLinkOf(t, s, first.shared.peer.who, 12+i, true, false)
	}
	require.NoError(t, second.Close())
	assert.Equal(t, linkMsg{msgClosed, second.id}, second.receives(t))
	require.NoError(t, first.Close())
	assert.Equal(t, linkMsg{msgClosed, 11}, first.receives(t), "it was asked for no move")
}

// TestMove_OtherUser: if this process has changed its user, the peer takes it for another one than before.
func TestMove_OtherUser(t *testing.T) {
	s := newStation(t, nil)
	first := fakeLink(t, s, 1, 11, true)
	who := first.shared.peer.who
	who.own++
	second, third := fakeLinkOf(t, s, who, 12, true, true), fakeLinkOf(t, s, who, 13, true, true)
	assert.Equal(t, linkMsg{msgMove, 13}, second.receives(t))
	require.NoError(t, first.Close())
	assert.Equal(t, linkMsg{msgClosed, 11}, first.receives(t), "it was asked for no move")
	assert.True(t, third.Up())
}

// TestWelcome_SharesConnections: the acceptor says whether it sees the PID of the dialer, and a dialer believes it.
func TestWelcome_SharesConnections(t *testing.T) {
	s := newStation(t, nil)
	for _, visible := range []bool{true, false} {
		conn, dialer, who := connPair(t)
		if !visible {
			who.pid = 0
		}
		hello, fds := s.hello(t)
		require.NoError(t, send(dialer, hello, fds...))
		s.accept(conn, who)
		welcome, offered, err := receive(dialer)
		require.NoError(t, err)
		assert.Equal(t, visible, welcome.shares)

		conn, _, _ = connPair(t)
		out := &Outbound{Link: newLink(s.Port, conn, who, s.gid)}
		welcome.to = s.gid
		require.NoError(t, s.acceptReply(out, &welcome, offered))
		offered.close()
		assert.Equal(t, visible, out.peerShares)
		require.NoError(t, out.Close())
	}
}

// TestHostile_SameName: of two links with one name, the second one has its own connection for good.
func TestHostile_SameName(t *testing.T) {
	s := newStation(t, nil)
	other, first, second := fakeLink(t, s, 1, 10, false), fakeLink(t, s, 1, 11, false), fakeLink(t, s, 1, 11, false)
	other.sends(t, msgMove, 11)
	assert.Equal(t, linkMsg{msgMoved, 11}, first.receives(t))
	require.NoError(t, second.conn.Close())
	within(t, second.Done(), "end of the link")
	require.NoError(t, second.Close())
	assert.True(t, first.Up())
	other.sends(t, msgClosed, 11)
	within(t, first.Done(), "end of the link")
	assert.True(t, other.Up())
}

// TestClose_PeerDoesNotRead: closing links does not wait for a peer that reads nothing, and what it was not told is
// told when it reads again.
func TestClose_PeerDoesNotRead(t *testing.T) {
	const links = 2000
	s := newStation(t, func(c *Config) { c.MaxLinks = 2 * links })
	first := fakeLink(t, s, 1, 1, false)
	var all []*Link
	for i := range links {
		all = append(all, first.carry(s.Port, linkID(i+2)))
	}
	all = append(all, first.Link)
	for _, l := range all {
		require.NoError(t, l.Close())
	}
	for _, l := range all {
		require.Equal(t, linkMsg{msgClosed, l.id}, first.receives(t))
	}
	_, err := first.conn.Read(make([]byte, 1))
	assert.Error(t, err, "hung up when all was said")
}

// TestClose_PeerWasFirst: a peer that has closed a link gets no CLOSED for it.
func TestClose_PeerWasFirst(t *testing.T) {
	s := newStation(t, nil)
	first := fakeLink(t, s, 1, 1, false)
	l := first.carry(s.Port, 2)
	first.sends(t, msgClosed, 2)
	within(t, l.Done(), "end of the link")
	require.NoError(t, l.Close())
	require.NoError(t, first.Close())
	assert.Equal(t, linkMsg{msgClosed, 1}, first.receives(t))
}

// TestSend_QueueIsFull: a connection whose peer does not read goes down when too many messages wait.
func TestSend_QueueIsFull(t *testing.T) {
	s := newStation(t, nil)
	first := fakeLink(t, s, 1, 1, false)
	processes.Lock()
	for range 2 * maxQueue {
		first.shared.send(msgClosed, 99)
	}
	assert.Empty(t, first.shared.queue)
	unlockProcesses()
	within(t, first.Done(), "end of the link")
	assert.False(t, first.PeerStays())
}

// TestDial_SlotsReturn: dials that have ended, well or not, leave room for others.
func TestDial_SlotsReturn(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	for range 10 {
		p := a.pairWith(t, b)
		_, err := a.Dial(t.Context(), anyGID())
		require.Error(t, err)
		require.NoError(t, p.out.Close())
	}
	a.pairWith(t, b)
	a.pairWith(t, b)
	testenv.ProgressWithin(t, watchdog, func() bool { return len(dialSlots) == 0 })
}

// TestDial_PeersThatAreSilent: dials to a process that does not answer keep others waiting for a while only, and
// then not at all, and end when the port does.
func TestDial_PeersThatAreSilent(t *testing.T) {
	a, b, silent, gid := newStation(t, nil), newStation(t, nil), newStation(t, nil), anyGID()
	l, err := net.ListenUnix(network, socketAddr("", testService, uint32(os.Geteuid()), gid))
	require.NoError(t, err)
	defer l.Close()
	var wg sync.WaitGroup
	for range 2 * maxDials {
		wg.Go(func() { _, err := silent.Dial(t.Context(), gid); assert.ErrorIs(t, err, ucs.ErrClosed) })
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return lateTo(os.Getpid()) > 0 && len(dialSlots) == 0 })
	a.pairWith(t, b).works(t)
	require.NoError(t, silent.Port.Close())
	wg.Wait()
	assert.Zero(t, lateTo(os.Getpid()))
}

// lateTo is how many dials to a process of this user are late.
func lateTo(pid int) int {
	lateDials.Lock()
	defer lateDials.Unlock()
	user := uint32(os.Geteuid())
	return lateDials.to[peer{pid: pid, uid: user, own: user}]
}

// TestDialSlot: a dial counts until it ends, or one to the same process is late.
func TestDialSlot(t *testing.T) {
	s := newStation(t, nil)
	take := func() *dialSlot {
		for {
			d, err := s.acquireDialSlot(t.Context())
			require.NoError(t, err)
			if d.timer.Stop() {
				t.Cleanup(d.release)
				return d
			}
			d.finish() // this process stood for so long that it was late
		}
	}
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return len(dialSlots) == 0 }) // those of tests before
	first, second, other := take(), take(), take()
	assert.Len(t, dialSlots, 3)
	first.reached(peer{pid: 1})
	first.setLate()
	assert.Len(t, dialSlots, 2)
	second.reached(peer{pid: 1})
	assert.Len(t, dialSlots, 1)
	other.reached(peer{pid: 2})
	assert.Len(t, dialSlots, 1)
	first.finish()
	first.finish()
	first.setLate()
	third := take()
	third.reached(peer{pid: 1})
	assert.Len(t, dialSlots, 2)
	unknown := take()
	unknown.setLate()
	assert.Len(t, dialSlots, 2)
	lateDials.Lock()
	defer lateDials.Unlock()
	assert.Empty(t, lateDials.to)
}

// TestDial_BacklogIsFull: dials to a listener that accepts nothing do not hold up other dials.
func TestDial_BacklogIsFull(t *testing.T) {
	s := newStation(t, nil)
	addr := socketAddr("", s.cfg.Service, s.cfg.AllowUIDs[0], [16]byte{9, 9})
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: addr.Name}))
	require.NoError(t, unix.Listen(fd, 0))
	ctx, cancel := context.WithCancel(t.Context())
	var dials sync.WaitGroup
	defer dials.Wait()
	defer cancel()
	var waiting atomic.Int64
	for range maxDials + 2 {
		dials.Go(func() {
			slot, err := s.acquireDialSlot(ctx)
			if err != nil {
				return
			}
			defer slot.finish()
			slot.timer.Stop() // being late would free it too
			waiting.Add(1)
			if conn, err := connectOne(ctx, addr, slot); err == nil {
				defer conn.Close()
				slot.release()
				<-ctx.Done()
			}
		})
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return waiting.Load() == maxDials+2 })
}

// FuzzSharedConn: a process that sends any messages on its connections, about links of its own and of another process,
// ends none of the other one's.
func FuzzSharedConn(f *testing.F) {
	f.Add([]byte{0, 1, 1, 1, 2, 1, 0, 4, 0})
	f.Add([]byte{0, 1, 3, 1, 1, 3, 2, 2, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		s := newStation(t, nil)
		links := []*fake{fakeLink(t, s, 1, 1, true), fakeLink(t, s, 1, 2, true), fakeLink(t, s, 1, 3, false),
			fakeLink(t, s, 2, 4, true), fakeLink(t, s, 2, 5, false)}
		const own = 3
		for ; len(script) >= 3; script = script[3:] {
			from, kind, about := links[script[0]%own], linkMsgKind(script[1]%6), linkID(script[2]%7)
			_ = unixSend(from.conn, linkMsg{kind, about}.encode())
		}
		for _, l := range links[:own] {
			_ = l.conn.Close()
			within(t, l.Done(), "end of the link")
			_ = l.Close()
		}
		for _, l := range links[own:] {
			assert.True(t, l.Up())
		}
	})
}

// unixSend does not wait for room.
func unixSend(conn *net.UnixConn, b []byte) (err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) { err = unix.Send(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
	if ctlErr != nil {
		return ctlErr
	}
	return err
}
