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

// kindsOfMemory are memory from MD.Alloc and from MD.Reg.
var kindsOfMemory = []struct {
	name string
	make func(md uct.MD, n int) (uct.Mem, error)
}{
	{"allocated", func(md uct.MD, n int) (uct.Mem, error) { return md.Ext().Alloc.Alloc(n, uct.AccessAll) }},
	{"registered", func(md uct.MD, n int) (uct.Mem, error) {
		return md.Ext().Reg.Reg(make([]byte, n), uct.AccessAll)
	}},
}

// handle returns the key of a Mem.
func handle(mem uct.Mem) uint64 { return mem.(*memory).key }

// TestMemClose_IgnoresOtherVisits: Close does not wait for visits to other memory, or for later
// visits.
func TestMemClose_IgnoresOtherVisits(t *testing.T) {
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
			md := w.b.md.(*domain)
			w.ab.enter(handle(again))
			seen := md.visitors(again.(*memory))
			require.Len(t, seen, 1)
			w.ab.endVisit()
			w.ab.enter(handle(again)) // a later visit sees that the key is invalid
			assert.Empty(t, md.owner.Ongoing(seen))
			w.ab.endVisit()
			require.NoError(t, again.Close())
			assert.Zero(t, md.owner.Quarantined.Load())
		})
	}
}

// TestMemClose_LongVisit: allocated memory is quarantined and counted until the visit has
// ended; registered memory remains registered, with an invalid key.
func TestMemClose_LongVisit(t *testing.T) {
	t.Run("allocated", func(t *testing.T) {
		w := openTwo(t, Config{})
		md := w.b.md.(*domain)
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

// TestMemClose_ProcessStopped: time in which the process that closes memory is stopped does not count as waiting
// time for its peers.
func TestMemClose_ProcessStopped(t *testing.T) {
	w := openTwo(t, Config{})
	md := w.b.md.(*domain)
	mem, _ := w.register(4096, uct.AccessAll)
	w.ab.enter(handle(mem))
	seen := md.visitors(mem.(*memory))
	require.Len(t, seen, 1)
	left := make(chan []guard.Visit, 1)
	go func() { left <- md.owner.Await(seen, ucs.RevokeLimit) }()
	looks := func(n int) { // time for n checks
		for range n {
			md.mu.Lock()
			runtime.Gosched()
			md.mu.Unlock()
			runtime.Gosched()
		}
	}
	looks(200)
	md.mu.Lock() // Close blocks during a check
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

// TestZcopy_InVisits: the owner of the memory does not wait for all of a large
// copy, and the rest of the copy fails when the key is invalid.
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

// TestQuarantine_Bounded: Alloc fails, with the reason, if more than half of the arena is in quarantine.
func TestQuarantine_Bounded(t *testing.T) {
	w := openTwo(t, Config{})
	md := w.b.md.(*domain)
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

// TestIfaceClose_GuardsRemainMapped: a peer may visit memory of the domain after the iface of the link was
// closed.
func TestIfaceClose_GuardsRemainMapped(t *testing.T) {
	w := openTwo(t, Config{})
	md := w.b.md.(*domain)
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
	testenv.ProgressWithin(t, watchdog, func() bool { // the peer disconnects too
		w.a.iface.Progress()
		return linksOf(md) == 0 && md.owner.QuarantinedBytes.Load() == 0 // one soon after the other
	})
	assert.Equal(t, 1, controlsOf(md))
}

// linksOf returns the number of links of a domain, including those of closed ifaces.
func linksOf(md *domain) int {
	md.mu.Lock()
	defer md.mu.Unlock()
	return len(md.links)
}

// controlsOf returns the number of users of the control blocks of a domain.
func controlsOf(md *domain) (users int) {
	md.mu.Lock()
	defer md.mu.Unlock()
	for _, n := range md.controls {
		users += n
	}
	return users
}

// TestMDClose_DuringVisit: after a domain was closed, only the peer maps its pages.
func TestMDClose_DuringVisit(t *testing.T) {
	a, b := openStation(t, Config{}), openStation(t, Config{})
	e := a.connect(t, b.exchangedInfo())
	e.enter(handle(b.mem))
	p := e.mapped(handle(b.mem), b.mem.Addr(), 4096, uct.AccessRemoteWrite)
	b.close(t)
	fill(bytesOf(p, 0, 4096), visited)
	e.endVisit()
	require.NoError(t, e.Close())
	a.close(t)
}

// TestMem_NotClosed: the garbage collector does not panic because of the Pinner of a Mem that was not closed.
func TestMem_NotClosed(t *testing.T) {
	md, err := openTestMD()
	require.NoError(t, err)
	mem, err := md.Ext().Reg.Reg(make([]byte, 4096), uct.AccessAll)
	require.NoError(t, err)
	collected := make(chan struct{})
	runtime.AddCleanup(mem.(*memory), func(struct{}) { close(collected) }, struct{}{})
	closeLater := func() {
		openDomains.Range(func(d, _ any) bool {
			for _, m := range d.(*domain).mems {
				assert.NoError(t, m.Close())
			}
			assert.NoError(t, d.(*domain).Close())
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

// visitedStation starts a second process that visits the returned memory, s.mem.
func visitedStation(t *testing.T, s *station, mem uct.Mem) *child {
	t.Helper()
	old := s.mem
	s.mem = mem
	defer func() { s.mem = old }()
	return start(t, roleVisit, s, "")
}

// TestVisitor_Stopped: a process that is stopped during a visit does not block Close, and
// when it continues, it writes to memory that is not reused.
func TestVisitor_Stopped(t *testing.T) {
	for _, gone := range []string{"memory", "iface, then memory"} {
		t.Run(gone, func(t *testing.T) {
			s := openStation(t, Config{})
			md, other := s.md.(*domain), s.open(t, nil)
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

// TestVisitor_Killed: the death of the process ends its visit, without progress.
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
			md := s.md.(*domain)
			testenv.ProgressWithin(t, watchdog, func() bool { // the hang-up, on another goroutine
				return mem.Close() == nil && md.owner.QuarantinedBytes.Load() == 0
			})
			s.close(t)
		})
	}
}

// closeUsed closes memory to which another process writes. The writer may wait for a
// CPU for longer than Close waits.
func closeUsed(t *testing.T, mem uct.Mem) {
	t.Helper()
	testenv.ProgressWithin(t, watchdog, func() bool { return mem.Close() == nil })
}

// closers close memory, or its iface or domain, while a peer writes. Each returns when no peer can access the
// memory.
var closers = []struct {
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

// TestRevoke_UnderTransfer: memory is closed while another process puts to it with all operations. Then its bytes do
// not change.
func TestRevoke_UnderTransfer(t *testing.T) {
	for _, kind := range kindsOfMemory {
		for _, way := range closers {
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

// revokeUnderTransfer makes c write to mem, closes it, and checks that its bytes, or those
// of the next allocation from the same arena, do not change.
func revokeUnderTransfer(t *testing.T, s *station, c *child, mem uct.Mem, revoke func()) {
	t.Helper()
	key, err := mem.PackRKey(nil)
	require.NoError(t, err)
	at := wordAt(mem, putLen/2)
	require.NoError(t, writeInfo(c.In, exchangedInfo{s.iface.DeviceAddr(nil), s.iface.IfaceAddr(nil), mem.Addr(), key}))
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return at.Load() != 0 })
	buf, allocated := mem.Bytes(), mem.(*memory).pin == nil
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

// TestRevoke_WriterKilled: peers are killed while they write, before or after the owner closes the
// memory. No other memory is written, the memory is not written after it was closed, and no resources of the peers
// remain.
func TestRevoke_WriterKilled(t *testing.T) {
	const band = 4096
	s := openStation(t, Config{})
	md := s.md.(*domain)
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
		require.NoError(t, writeInfo(c.In, exchangedInfo{s.iface.DeviceAddr(nil), s.iface.IfaceAddr(nil), mem.Addr(), key}))
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
