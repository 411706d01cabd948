package sm

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// two has two connected stations in this process.
type two struct {
	t    testing.TB
	a, b *station
	ab   *endpoint
	key  uct.RKey // of b.mem
}

func openTwo(t testing.TB, cfg Config) *two {
	t.Helper()
	w := &two{t: t, a: openStation(t, cfg), b: openStation(t, cfg)}
	w.ab = w.a.connect(t, w.b.exchangedInfo())
	w.key = w.a.key(t, w.b.exchangedInfo())
	t.Cleanup(func() {
		require.NoError(t, w.ab.Close())
		w.a.close(t)
		w.b.close(t)
	})
	return w
}

// until makes progress on both sides until done returns true.
func (w *two) until(done func() bool) {
	w.t.Helper()
	testenv.ProgressWithin(w.t, watchdog, func() bool {
		w.a.iface.Progress()
		w.b.iface.Progress()
		return done()
	})
}

// completion counts how often it fires.
type completion struct {
	uct.Completion
	fired int
}

func newCompletion() *completion {
	c := &completion{}
	c.Count = 1
	c.Func = func(*uct.Completion) { c.fired++ }
	return c
}

// TestGet_EndsVisit: a get of 8 bytes has ended its visit when it returns: the memory can be
// closed.
func TestGet_EndsVisit(t *testing.T) {
	w := openTwo(t, Config{})
	mem, err := w.b.md.Ext().Alloc.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	key, err := w.a.md.Ext().Keys.UnpackRKey(packed)
	require.NoError(t, err)
	word := make([]byte, wordLen)
	for _, op := range []func() error{
		func() error { return w.ab.PutShort(word, mem.Addr(), key) },
		func() error { _, err := w.ab.GetBcopy(word, mem.Addr(), key, nil); return err },
		func() error { _, err := w.ab.GetBcopy(word[:3], mem.Addr(), key, nil); return err },
	} {
		for range 3 { // the first one looks up the key
			require.NoError(t, op())
			require.Empty(t, w.b.md.(*domain).visitors(mem.(*memory)))
		}
	}
	require.NoError(t, mem.Close())
}

// TestFlush_IsBarrier: a flush with nothing in flight makes stores visible before it returns.
func TestFlush_IsBarrier(t *testing.T) {
	w := openTwo(t, Config{})
	for name, flush := range map[string]func(*uct.Completion) (bool, error){"ep": w.ab.Flush, "iface": w.a.iface.Flush} {
		before := w.a.iface.fence.Load()
		pending, err := flush(nil)
		require.NoError(t, err)
		assert.False(t, pending)
		assert.NotEqual(t, before, w.a.iface.fence.Load(), name)
	}
}

// register registers heap memory of b, which a does not map.
func (w *two) register(n int, access uct.Access) (uct.Mem, uct.RKey) {
	w.t.Helper()
	mem, err := w.b.md.Ext().Reg.Reg(make([]byte, n), access)
	require.NoError(w.t, err)
	packed, err := mem.PackRKey(nil)
	require.NoError(w.t, err)
	key, err := w.a.md.Ext().Keys.UnpackRKey(packed)
	require.NoError(w.t, err)
	return mem, key
}

// waitPending waits for an operation that returned pending, err.
func (w *two) waitPending(c *completion, pending bool, err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	if pending {
		w.until(func() bool { return c.fired > 0 })
		assert.Equal(w.t, 1, c.fired)
		assert.Equal(w.t, ucs.StatusOK, c.Status)
	}
}

// needCMA skips the test if cross-memory attach is forbidden even for this process itself.
func needCMA(t testing.TB) {
	t.Helper()
	if err := cmaHere(); err != nil {
		t.Skipf("cross-memory attach: %v", err)
	}
}

func cmaHere() error {
	word := new(uint64)
	*word = 77
	return new(cma.Vec).Probe(os.Getpid(), addrOf(word), *word)
}

// TestCMA_Required: with CMA=y, the EP fails with the reason if the peer's memory cannot be accessed by cross-memory
// attach, when it connects or later.
func TestCMA_Required(t *testing.T) {
	needCMA(t)
	w := openTwo(t, Config{CMA: config.Yes})
	mem, key := w.register(4096, uct.AccessAll)
	w.b.md.(*domain).table.header().cookie.Store(1) // as if another process had the pid
	var why error
	it := w.a.open(t, func(_ uct.EP, err error) { why = err })
	ep, err := it.NewEP(uct.EPParams{DeviceAddr: w.b.iface.DeviceAddr(nil), IfaceAddr: w.b.iface.IfaceAddr(nil)})
	require.NoError(t, err)
	assert.Equal(t, uct.ErrNoResource, ep.(*endpoint).AMShort(idSink, 1, nil))
	testenv.ProgressWithin(t, watchdog, func() bool { it.Progress(); return why != nil })
	assert.ErrorIs(t, why, cma.ErrOtherProcess)
	require.NoError(t, it.Close())

	w.ab.cmaErr = cma.ErrForbidden
	assert.Equal(t, uct.ErrNoResource, w.ab.GetShort(make([]byte, 8), mem.Addr(), key))
	w.a.iface.Progress()
	assert.ErrorIs(t, w.ab.GetShort(make([]byte, 8), mem.Addr(), key), uct.ErrEPFailed)
	assert.ErrorIs(t, w.ab.reason, cma.ErrForbidden)
	require.NoError(t, mem.Close())
}

// TestRMA_AllAccessMethods: all operations work on allocated memory, on registered
// memory by the kernel, and on registered memory by the peer.
func TestRMA_AllAccessMethods(t *testing.T) {
	const size = 100 << 10
	for _, tc := range []struct {
		name       string
		cma        config.Ternary
		registered bool
		byTarget   bool
	}{
		{"mapped", config.Auto, false, false},
		{"mapped, short gets", config.Yes, false, false},
		{"attached", config.Auto, true, false},
		{"attached, short gets", config.Yes, true, false},
		{"by the target", config.No, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.byTarget {
				needCMA(t)
			}
			w := openTwo(t, Config{CMA: tc.cma})
			mem, key := w.b.mem, w.key
			if tc.registered {
				mem, key = w.register(size, uct.AccessAll)
				defer func() { require.NoError(t, mem.Close()) }()
			}
			w.checkPuts(mem, key)
			w.checkGets(mem, key, tc.byTarget)
			w.checkAtomics(mem, key)
			pending, err := w.ab.Flush(nil)
			require.NoError(t, err)
			assert.False(t, pending, "everything has completed")
		})
	}
}

func (w *two) flush() {
	w.t.Helper()
	c := newCompletion()
	pending, err := w.ab.Flush(&c.Completion)
	w.waitPending(c, pending, err)
}

func (w *two) checkPuts(mem uct.Mem, key uct.RKey) {
	t := w.t
	for _, n := range []int{1, 7, 8, 64, 8 << 10} {
		require.NoError(t, w.ab.PutShort(testenv.Pattern(n, n), mem.Addr()+3, key))
		w.flush()
		assert.True(t, bytes.Equal(testenv.Pattern(n, n), mem.Bytes()[3:3+n]), "short %d", n)
		require.NoError(t, w.ab.PutBcopy(testenv.Pattern(n, n+1), mem.Addr()+8192, key))
		w.flush()
		assert.True(t, bytes.Equal(testenv.Pattern(n, n+1), mem.Bytes()[8192:8192+n]), "bcopy %d", n)
	}
	data := testenv.Pattern(90<<10, 5)
	c := newCompletion()
	iov := []uct.IOV{{Buf: data[:1]}, {}, {Buf: data[1:70001]}, {Buf: data[70001:]}}
	pending, err := w.ab.PutZcopy(iov, mem.Addr()+1, key, &c.Completion)
	w.waitPending(c, pending, err)
	w.flush()
	assert.True(t, bytes.Equal(data, mem.Bytes()[1:1+len(data)]), "zcopy")
	assert.NoError(t, w.ab.PutShort(nil, mem.Addr(), key), "no bytes")
}

func (w *two) checkGets(mem uct.Mem, key uct.RKey, byTarget bool) {
	t := w.t
	copy(mem.Bytes(), testenv.Pattern(100<<10, 9))
	if w.a.iface.Attr().Caps.Has(uct.CapGetShort) {
		buf := make([]byte, 4000)
		require.NoError(t, w.ab.GetShort(buf, mem.Addr()+5, key))
		assert.True(t, bytes.Equal(mem.Bytes()[5:4005], buf), "short")
	} else {
		assert.Equal(t, uct.ErrUnsupported, w.ab.GetShort(nil, mem.Addr()+5, key))
	}
	for _, n := range []int{0, 8, 8 << 10} {
		c, got := newCompletion(), make([]byte, n)
		pending, err := w.ab.GetBcopy(got, mem.Addr()+5, key, &c.Completion)
		assert.Equal(t, byTarget && n > 0, pending)
		w.waitPending(c, pending, err)
		assert.True(t, bytes.Equal(mem.Bytes()[5:5+n], got), "bcopy %d", n)
	}

	got := make([]byte, 90<<10)
	c := newCompletion()
	iov := []uct.IOV{{Buf: got[:10000]}, {Buf: got[10000:10001]}, {Buf: got[10001:]}}
	pending, err := w.ab.GetZcopy(iov, mem.Addr()+7, key, &c.Completion)
	w.waitPending(c, pending, err)
	assert.True(t, bytes.Equal(mem.Bytes()[7:7+len(got)], got), "zcopy")
}

func (w *two) checkAtomics(mem uct.Mem, key uct.RKey) {
	t, raddr := w.t, mem.Addr()+64
	for _, size := range []int{4, 8} {
		mask := uint64(math.MaxUint64)
		if size == 4 {
			mask = math.MaxUint32
		}
		word := uint64(0)
		clear(mem.Bytes()[64:72])
		for op := uct.AtomicAdd; op < uct.AtomicCSwap; op++ {
			c, old := newCompletion(), new(uint64)
			value := uint64(op)*0x1234567 + 5
			pending, err := w.ab.AtomicFetch(op, size, value, old, raddr, key, &c.Completion)
			w.waitPending(c, pending, err)
			assert.Equal(t, word, *old, "%v/%d", op, size)
			word = op.Apply(size, word, 0, value)
			require.NoError(t, w.ab.AtomicPost(op, size, value, raddr, key))
			word = op.Apply(size, word, 0, value) & mask
		}
		for _, compare := range []uint64{word, word + 1} {
			c, old := newCompletion(), new(uint64)
			pending, err := w.ab.AtomicCSwap(size, compare, 77, old, raddr, key, &c.Completion)
			w.waitPending(c, pending, err)
			assert.Equal(t, word, *old)
			word = uct.AtomicCSwap.Apply(size, word, compare, 77)
		}
	}
	assert.Equal(t, uct.ErrInvalidParam, w.ab.AtomicPost(uct.AtomicAdd, 8, 1, raddr+4, key))
	assert.Equal(t, uct.ErrInvalidParam, w.ab.AtomicPost(uct.AtomicAdd, 2, 1, raddr, key))
	assert.Equal(t, uct.ErrUnsupported, w.ab.AtomicPost(uct.AtomicCSwap, 8, 1, raddr, key))
}

// TestFence_WaitsForTargetOps: a direct access does not overtake an operation that the
// peer executes.
func TestFence_WaitsForTargetOps(t *testing.T) {
	w := openTwo(t, Config{})
	mem, key := w.register(4096, uct.AccessAll)
	require.NoError(t, w.ab.AtomicPost(uct.AtomicAdd, 8, 5, mem.Addr(), key), "the peer has to do it")
	require.NoError(t, w.ab.Fence())
	flag, base := []byte{1}, w.b.mem.Addr()
	assert.Equal(t, uct.ErrNoResource, w.ab.PutShort(flag, base, w.key))
	done := false
	r := &uct.PendingReq{Func: func(*uct.PendingReq) error {
		err := w.ab.PutShort(flag, base, w.key)
		done = err == nil
		return err
	}}
	require.NoError(t, w.ab.AddPending(r))
	assert.Zero(t, mem.Bytes()[0])
	w.until(func() bool { return done })
	assert.EqualValues(t, 5, mem.Bytes()[0])
	assert.EqualValues(t, 1, w.b.mem.Bytes()[0])
	require.NoError(t, mem.Close())
}

// TestKeys_Rejected: after each rejection the EP still works, and no byte has changed.
func TestKeys_Rejected(t *testing.T) {
	w := openTwo(t, Config{})
	alloc := w.b.md.Ext().Alloc
	readOnly, err := alloc.Alloc(4096, uct.AccessRemoteRead)
	require.NoError(t, err)
	gone, err := alloc.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	keyOf := func(m uct.Mem) uct.RKey {
		packed, err := m.PackRKey(nil)
		require.NoError(t, err)
		k, err := w.a.md.Ext().Keys.UnpackRKey(packed)
		require.NoError(t, err)
		return k
	}
	ro, stale := keyOf(readOnly), keyOf(gone)
	require.NoError(t, gone.Close())
	fresh, err := alloc.Alloc(4096, uct.AccessAll) // the same pages, perhaps the same place in the table
	require.NoError(t, err)
	base, n := w.b.mem.Addr(), uint64(len(w.b.mem.Bytes()))
	for _, tc := range []struct {
		name  string
		raddr uint64
		key   uct.RKey
	}{
		{"no such key", base, w.key + 1<<20},
		{"key of the own domain", base, w.b.key(t, w.a.exchangedInfo())},
		{"stale", gone.Addr(), stale},
		{"read only", readOnly.Addr(), ro},
		{"below", base - 1, w.key},
		{"above", base + n - 7, w.key},
		{"far above", base + n + 1<<40, w.key},
		{"wraps", math.MaxUint64 - 3, w.key},
	} {
		t.Run(tc.name, func(t *testing.T) {
			buf := make([]byte, 8)
			assert.Equal(t, ucs.ErrRemoteAccess, w.ab.PutShort(buf, tc.raddr, tc.key))
			assert.Equal(t, ucs.ErrRemoteAccess, w.ab.PutBcopy(buf, tc.raddr, tc.key))
			_, err := w.ab.PutZcopy([]uct.IOV{{Buf: buf}}, tc.raddr, tc.key, nil)
			assert.Equal(t, ucs.ErrRemoteAccess, err)
			assert.Equal(t, ucs.ErrRemoteAccess, w.ab.AtomicPost(uct.AtomicAdd, 8, 1, tc.raddr&^7, uct.RKey(uint64(tc.key)^1<<40)))
			if tc.key != ro {
				_, err = w.ab.GetBcopy(buf, tc.raddr, tc.key, nil)
				assert.Equal(t, ucs.ErrRemoteAccess, err)
			}
			assert.NoError(t, w.ab.PutShort(buf, base, w.key), "the ep works on")
		})
	}
	assert.Equal(t, make([]byte, n), w.b.mem.Bytes())
	require.NoError(t, readOnly.Close())
	require.NoError(t, fresh.Close())
}

func TestStoppedTarget(t *testing.T) {
	s := openStation(t, Config{})
	c := start(t, roleEcho, s, "")
	e := s.connect(t, c.exchangedInfo)
	key := s.key(t, c.exchangedInfo)
	c.Stop(t)

	data, old := testenv.Pattern(8, 1), new(uint64)
	read := func(raddr uint64) []byte {
		got := make([]byte, 8)
		pending, err := e.GetBcopy(got, raddr, key, nil)
		require.NoError(t, err)
		require.False(t, pending)
		return got
	}
	require.NoError(t, e.PutShort(data, c.Raddr+8192, key))
	assert.Equal(t, data, read(c.Raddr+8192))
	require.NoError(t, e.AtomicPost(uct.AtomicAdd, 8, 3, c.Raddr+16384, key))
	_, err := e.AtomicFetch(uct.AtomicAdd, 8, 1, old, c.Raddr+16384, key, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 3, *old)
	pending, err := e.Flush(nil)
	require.NoError(t, err)
	assert.False(t, pending)
	sent := 0
	for e.AMShort(idSink, 1, nil) == nil {
		sent++
	}
	assert.Equal(t, defaultFIFOSize, sent, "messages wait, as many as fit")

	c.Continue(t)
	testenv.ProgressWithin(t, watchdog, func() bool {
		s.iface.Progress()
		got := read(c.Raddr + 4096)
		return got[0] == byte(sent) && got[1] == byte(sent>>8)
	})
	require.NoError(t, e.Close())
	c.End(t)
	s.close(t)
	runtime.KeepAlive(s)
}
