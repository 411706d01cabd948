package sm

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// kindsOfMemory are what MD.Alloc and MD.Reg give.
var kindsOfMemory = []struct {
	name string
	make func(md uct.MD, n int) (uct.Mem, error)
}{
	{"allocated", func(md uct.MD, n int) (uct.Mem, error) { return md.Ext().Alloc.Alloc(n, uct.AccessAll) }},
	{"registered", func(md uct.MD, n int) (uct.Mem, error) {
		return md.Ext().Reg.Reg(make([]byte, n), uct.AccessAll)
	}},
}

// handle is the key of a Mem.
func handle(mem uct.Mem) uint64 { return mem.(*Mem).key }

// TestMemClose_VisitsThatDoNotMatter: peers are inside other memory, all the time, or
// come back for more.
func TestMemClose_VisitsThatDoNotMatter(t *testing.T) {
	for _, kind := range kindsOfMemory {
		t.Run(kind.name, func(t *testing.T) {
			w := openTwo(t, Config{})
			mem, err := kind.make(w.b.md, 4096)
			require.NoError(t, err)
			w.ab.enter(handle(w.b.mem))
			require.NoError(t, mem.Close())
			w.ab.endVisit()

			again, err := kind.make(w.b.md, 4096)
			require.NoError(t, err)
			md := w.b.md.(*MD)
			w.ab.enter(handle(again))
			seen := md.visitors(again.(*Mem))
			require.Len(t, seen, 1)
			w.ab.endVisit()
			w.ab.enter(handle(again)) // the next one sees that the key is gone
			assert.Empty(t, md.owner.Ongoing(seen))
			w.ab.endVisit()
			require.NoError(t, again.Close())
			assert.Zero(t, md.owner.Quarantined.Load())
		})
	}
}

// TestMemClose_VisitGoesOn: allocated memory is left behind, counted, until the visit is
// over; the caller's memory stays registered, under a key that nobody can use.
func TestMemClose_VisitGoesOn(t *testing.T) {
	t.Run("allocated", func(t *testing.T) {
		w := openTwo(t, Config{})
		md := w.b.md.(*MD)
		mem, err := md.Alloc(4096, uct.AccessAll)
		require.NoError(t, err)
		w.ab.enter(handle(mem))
		require.NoError(t, mem.Close())
		require.NoError(t, mem.Close(), "once more")
		assert.EqualValues(t, 1, md.owner.Quarantined.Load())
		assert.EqualValues(t, 4096, md.owner.QuarantinedBytes.Load())
		w.ab.endVisit()
		again, err := md.Alloc(4096, uct.AccessAll)
		require.NoError(t, err)
		assert.Zero(t, md.owner.QuarantinedBytes.Load())
		require.NoError(t, again.Close())
	})
	t.Run("registered", func(t *testing.T) {
		w := openTwo(t, Config{})
		mem, key := w.register(4096, uct.AccessAll)
		w.ab.enter(handle(mem))
		synctest.Test(t, func(t *testing.T) {
			for range 2 {
				from := time.Now()
				err := mem.Close()
				var inUse *ucs.InUseError
				require.ErrorAs(t, err, &inUse)
				assert.ErrorIs(t, err, ucs.ErrTimedOut)
				assert.Equal(t, []int{os.Getpid()}, inUse.PIDs)
				assert.GreaterOrEqual(t, time.Since(from), ucs.RevokeLimit)
			}
		})
		w.ab.endVisit()
		assert.Equal(t, ucs.ErrRemoteAccess, w.ab.PutShort([]byte{1}, mem.Addr(), key))
		assert.ErrorIs(t, w.b.md.Close(), uct.ErrBusy)
		require.NoError(t, mem.Close())
		require.NoError(t, mem.Close())
	})
}

// TestMemClose_ProcessStood: the time in which the process that closes memory stands still is no
// time that it waited for its peers.
func TestMemClose_ProcessStood(t *testing.T) {
	w := openTwo(t, Config{})
	md := w.b.md.(*MD)
	mem, _ := w.register(4096, uct.AccessAll)
	w.ab.enter(handle(mem))
	seen := md.visitors(mem.(*Mem))
	require.Len(t, seen, 1)
	left := make(chan []guard.Visit, 1)
	go func() { left <- md.owner.Await(seen, ucs.RevokeLimit) }()
	looks := func(n int) { // time for so many
		for range n {
			md.mu.Lock()
			runtime.Gosched()
			md.mu.Unlock()
			runtime.Gosched()
		}
	}
	looks(200)
	md.mu.Lock() // it stands in the middle of a look
	for from := time.Now(); time.Since(from) <= ucs.RevokeLimit; {
		runtime.Gosched()
	}
	md.mu.Unlock()
	looks(200)
	select {
	case <-left:
		require.Fail(t, "it has not waited")
	default:
	}
	w.ab.endVisit()
	assert.Empty(t, <-left)
	require.NoError(t, mem.Close())
}

// TestZcopy_InVisits: a long copy does not keep the owner of the memory waiting for all of
// it, and what is left when the key goes is refused.
func TestZcopy_InVisits(t *testing.T) {
	const n = visitMax + 8
	data, back := testenv.Pattern(n, 4), make([]byte, n)
	for _, kind := range kindsOfMemory {
		t.Run(kind.name, func(t *testing.T) {
			needCMA(t)
			w := openTwo(t, Config{})
			mem, err := kind.make(w.b.md, n)
			require.NoError(t, err)
			key := uct.RKey(handle(mem))
			from := w.ab.visits()
			pending, err := w.ab.PutZcopy([]uct.IOV{{Buf: data[:3]}, {}, {Buf: data[3:]}}, mem.Addr(), key, nil)
			require.NoError(t, err)
			require.False(t, pending)
			assert.GreaterOrEqual(t, w.ab.visits()-from, uint64(3))
			assert.True(t, bytes.Equal(data, mem.Bytes()))
			_, err = w.ab.GetZcopy([]uct.IOV{{Buf: back}}, mem.Addr(), key, nil)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(data, back))
			addr := mem.Addr()
			require.NoError(t, mem.Close())
			_, err = w.ab.PutZcopy([]uct.IOV{{Buf: data}}, addr, key, nil)
			assert.Equal(t, ucs.ErrRemoteAccess, err)
		})
	}
}

// TestQuarantine_Bounded: an arena of which too much is in quarantine hands out nothing,
// and says why.
func TestQuarantine_Bounded(t *testing.T) {
	w := openTwo(t, Config{})
	md := w.b.md.(*MD)
	half, err := md.Alloc(len(md.arenaSeg.Bytes())/2+4096, uct.AccessAll)
	require.NoError(t, err)
	w.ab.enter(handle(half))
	require.NoError(t, half.Close())
	synctest.Test(t, func(t *testing.T) {
		_, err := md.Alloc(4096, uct.AccessAll)
		assert.ErrorIs(t, err, uct.ErrNoMemory)
		assert.ErrorContains(t, err, "in use by processes")
	})
	w.ab.endVisit()
	mem, err := md.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	require.NoError(t, mem.Close())
}

// TestIfaceClose_GuardsStay: a peer may be inside, or come for more, long after an iface
// of the domain has gone.
func TestIfaceClose_GuardsStay(t *testing.T) {
	w := openTwo(t, Config{})
	md := w.b.md.(*MD)
	other := w.b.open(t, nil)
	victim, err := md.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	w.ab.enter(handle(victim))
	require.NoError(t, w.b.iface.Close())
	w.b.iface = other
	require.NoError(t, victim.Close())
	assert.EqualValues(t, 1, md.owner.Quarantined.Load())
	require.Equal(t, 1, linksOf(md))
	w.ab.endVisit()
	testenv.ProgressWithin(t, watchdog, func() bool { // it is told and hangs up too
		w.a.iface.Progress()
		return linksOf(md) == 0 && md.owner.QuarantinedBytes.Load() == 0 // one soon after the other
	})
	assert.Equal(t, 1, controlsOf(md))
}

// linksOf is how many links a domain has, of open ifaces and of others.
func linksOf(md *MD) int {
	md.mu.Lock()
	defer md.mu.Unlock()
	return len(md.links)
}

// controlsOf is how many users its control blocks have.
func controlsOf(md *MD) (users int) {
	md.mu.Lock()
	defer md.mu.Unlock()
	for _, n := range md.controls {
		users += n
	}
	return users
}

// TestMDClose_PeerInside: the pages of a domain that is gone are the peer's alone.
func TestMDClose_PeerInside(t *testing.T) {
	a, b := openStation(t, Config{}), openStation(t, Config{})
	e := a.connect(t, b.meeting())
	e.enter(handle(b.mem))
	p := e.mapped(handle(b.mem), b.mem.Addr(), 4096, uct.AccessRemoteWrite)
	b.close(t)
	fill(bytesOf(p, 0, 4096), visited)
	e.endVisit()
	require.NoError(t, e.Close())
	a.close(t)
}

// TestMem_ForgottenClose: the collector finds no pin that nobody can take back.
func TestMem_ForgottenClose(t *testing.T) {
	md, err := openTestMD()
	require.NoError(t, err)
	mem, err := md.Ext().Reg.Reg(make([]byte, 4096), uct.AccessAll)
	require.NoError(t, err)
	collected := make(chan struct{})
	runtime.AddCleanup(mem.(*Mem), func(struct{}) { close(collected) }, struct{}{})
	closeLater := func() {
		openDomains.Range(func(d, _ any) bool {
			for _, m := range d.(*MD).mems {
				assert.NoError(t, m.Close())
			}
			assert.NoError(t, d.(*MD).Close())
			return true
		})
	}
	md, mem = nil, nil
	for range 3 {
		runtime.GC()
	}
	select {
	case <-collected:
		assert.Fail(t, "collected while peers reach it")
	default:
	}
	closeLater()
}

// visitedStation starts a second process that is inside s.mem, which is the mem that is
// returned.
func visitedStation(t *testing.T, s *station, mem uct.Mem) *child {
	t.Helper()
	old := s.mem
	s.mem = mem
	defer func() { s.mem = old }()
	return start(t, roleVisit, s, "")
}

// TestVisitor_Stopped: a process that stands still inside memory holds nobody up, and
// what it does when it goes on happens in memory that is nobody else's.
func TestVisitor_Stopped(t *testing.T) {
	for _, gone := range []string{"memory", "iface, then memory"} {
		t.Run(gone, func(t *testing.T) {
			s := openStation(t, Config{})
			md, other := s.md.(*MD), s.open(t, nil)
			victim, err := md.Alloc(4096, uct.AccessAll)
			require.NoError(t, err)
			c := visitedStation(t, s, victim)
			c.Stop(t)
			if gone != "memory" {
				require.NoError(t, s.iface.Close())
				s.iface, other = other, s.iface
			}
			require.NoError(t, victim.Close())
			again, err := md.Alloc(4096, uct.AccessAll)
			require.NoError(t, err)
			assert.EqualValues(t, 4096, md.owner.QuarantinedBytes.Load())
			c.Continue(t)
			c.Tell(t, "leave")
			require.Equal(t, "left", c.Line(t))
			assert.Equal(t, make([]byte, 4096), again.Bytes())
			require.NoError(t, again.Close())
			fresh, err := md.Alloc(4096, uct.AccessAll)
			require.NoError(t, err)
			assert.Zero(t, md.owner.QuarantinedBytes.Load(), "given back")
			assert.Equal(t, make([]byte, 4096), fresh.Bytes(), "and cleared")
			require.NoError(t, fresh.Close())
			c.End(t)
			require.NoError(t, other.Close())
			s.close(t)
		})
	}
}

// TestVisitor_Killed: the kernel's word ends a visit, without progress.
func TestVisitor_Killed(t *testing.T) {
	for _, kind := range kindsOfMemory {
		t.Run(kind.name, func(t *testing.T) {
			s := openStation(t, Config{})
			mem, err := kind.make(s.md, 4096)
			require.NoError(t, err)
			c := visitedStation(t, s, mem)
			c.Stop(t)
			closed := mem.Close()
			if kind.name == "registered" {
				var inUse *ucs.InUseError
				require.ErrorAs(t, closed, &inUse)
				assert.Equal(t, []int{c.Process.Pid}, inUse.PIDs)
			} else {
				require.NoError(t, closed)
			}
			c.Kill(t)
			md := s.md.(*MD)
			testenv.ProgressWithin(t, watchdog, func() bool { // the hang-up, on another goroutine
				return mem.Close() == nil && md.owner.QuarantinedBytes.Load() == 0
			})
			s.close(t)
		})
	}
}

// closeUsed closes memory that another process writes to. Who is inside it may wait for a
// processor longer than Close waits for him.
func closeUsed(t *testing.T, mem uct.Mem) {
	t.Helper()
	testenv.ProgressWithin(t, watchdog, func() bool { return mem.Close() == nil })
}

// waysToGo are what an owner may close while a peer writes. Each returns when memory is
// the owner's again.
var waysToGo = []struct {
	name string
	do   func(t *testing.T, s *station, mem uct.Mem)
}{
	{"memory", func(t *testing.T, _ *station, mem uct.Mem) { closeUsed(t, mem) }},
	{"iface, then memory", func(t *testing.T, s *station, mem uct.Mem) {
		require.NoError(t, s.iface.Close())
		closeUsed(t, mem)
		s.iface = openIface(t, s.md, Config{})
	}},
	{"memory, then iface", func(t *testing.T, s *station, mem uct.Mem) {
		closeUsed(t, mem)
		require.NoError(t, s.iface.Close())
		s.iface = openIface(t, s.md, Config{})
	}},
	{"all", func(t *testing.T, s *station, mem uct.Mem) {
		require.NoError(t, s.iface.Close())
		closeUsed(t, mem)
		s.close(t)
		*s = *openStation(t, Config{})
	}},
}

// TestRevoke_UnderTransfer has another process put into memory in all ways, and closes
// that in the middle: from then on its bytes are the owner's.
func TestRevoke_UnderTransfer(t *testing.T) {
	for _, kind := range kindsOfMemory {
		for _, way := range waysToGo {
			t.Run(kind.name+"/"+way.name, func(t *testing.T) {
				if kind.name == "registered" {
					needCMA(t)
				}
				s := openStation(t, Config{})
				c := start(t, roleWrite, s, "")
				for range testenv.Rounds(3, 100) {
					mem, err := kind.make(s.md, putLen)
					require.NoError(t, err)
					revokeUnderTransfer(t, s, c, mem, func() { way.do(t, s, mem) })
				}
				c.End(t)
				s.close(t)
			})
		}
	}
}

// revokeUnderTransfer has c write to mem, closes it, and checks that its bytes, or those
// that come from the same arena next, stay as they are.
func revokeUnderTransfer(t *testing.T, s *station, c *child, mem uct.Mem, revoke func()) {
	t.Helper()
	key, err := mem.PackRKey(nil)
	require.NoError(t, err)
	at := wordAt(mem, putLen/2)
	require.NoError(t, writeMeeting(c.In, meeting{s.iface.DeviceAddr(nil), s.iface.IfaceAddr(nil), mem.Addr(), key}))
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return at.Load() != 0 })
	buf, allocated := mem.Bytes(), mem.(*Mem).pin == nil
	revoke()
	if allocated {
		next, err := s.md.Ext().Alloc.Alloc(putLen, uct.AccessAll)
		require.NoError(t, err)
		defer func() { require.NoError(t, next.Close()) }()
		buf = next.Bytes()
	}
	mine := bytes.Repeat([]byte{0x11}, len(buf))
	copy(buf, mine)
	require.Equal(t, "refused", c.Line(t))
	require.True(t, bytes.Equal(mine, buf), "a peer wrote to memory that was closed")
}

// TestRevoke_WriterIsKilled: one long-lived owner, whose peers are killed in the middle of
// what they write, before or after it closes the memory. Nothing beside the memory is
// touched, nothing of it after it was closed, and nothing is left.
func TestRevoke_WriterIsKilled(t *testing.T) {
	const band = 4096
	s := openStation(t, Config{})
	md := s.md.(*MD)
	for i := range testenv.Rounds(5, 1000) {
		around := make([]byte, putLen+2*band)
		mem, err := s.md.Ext().Reg.Reg(around[band:band+putLen], uct.AccessAll)
		if i%2 == 1 {
			require.NoError(t, mem.Close())
			mem, err = s.md.Ext().Alloc.Alloc(putLen, uct.AccessAll)
		}
		require.NoError(t, err)
		key, err := mem.PackRKey(nil)
		require.NoError(t, err)
		c := start(t, roleWrite, s, "")
		require.NoError(t, writeMeeting(c.In, meeting{s.iface.DeviceAddr(nil), s.iface.IfaceAddr(nil), mem.Addr(), key}))
		at := wordAt(mem, putLen/2)
		written := func() bool { s.iface.Progress(); return at.Load() != 0 }
		testenv.ProgressWithin(t, watchdog, written)
		if i%4 < 2 {
			c.Kill(t)
		}
		testenv.ProgressWithin(t, watchdog, func() bool { return mem.Close() == nil })
		closed := bytes.Clone(around)
		if i%4 >= 2 {
			c.Kill(t)
		}
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return linksOf(md) == 0 })
		require.True(t, bytes.Equal(closed, around), "written to after it was closed")
		require.Equal(t, make([]byte, band), around[:band])
		require.Equal(t, make([]byte, band), around[band+putLen:])
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return md.owner.QuarantinedBytes.Load() == 0 }) // soon after the link
	s.close(t)
}
