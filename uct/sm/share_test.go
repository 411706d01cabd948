package sm

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// holdings are the numbers of kernel objects of a process.
type holdings struct{ descriptors, mappings, goroutines int }

func held(t testing.TB) holdings {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return holdings{testenv.OpenFiles(t), bytes.Count(maps, []byte("gucx-")), runtime.NumGoroutine()}
}

// atMost reports whether h is no more than other. A goroutine that ends may be in an earlier count.
func (h holdings) atMost(other holdings) bool {
	return h.descriptors <= other.descriptors && h.mappings <= other.mappings && h.goroutines <= other.goroutines
}

// TestEP_SharesLink: further EPs to the same iface use only memory of this process,
// and are closed independently.
func TestEP_SharesLink(t *testing.T) {
	w := openTwo(t, Config{CMA: config.No})
	mem, far := w.register(4096, uct.AccessAll)
	got := 0
	require.NoError(t, w.b.iface.SetAMHandler(idSink, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { got++; return false })))
	one := held(t)
	var eps []*endpoint
	for range 100 {
		eps = append(eps, w.a.connect(t, w.b.exchangedInfo()))
	}
	now := held(t)
	assert.True(t, now.atMost(one), "%+v after %+v", now, one)
	c := newCompletion()
	pending, err := eps[0].GetBcopy(make([]byte, 64), mem.Addr(), far, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	for i, e := range eps {
		require.NoError(t, e.AMShort(idSink, 0, nil))
		require.NoError(t, e.PutShort([]byte{byte(i)}, w.b.mem.Addr()+uint64(i), w.key))
		if i%2 == 0 {
			require.NoError(t, e.Close()) // the first one with a reply in flight
		}
	}
	assert.Equal(t, 1, c.fired)
	w.until(func() bool { return got == len(eps) })
	for i, e := range eps {
		assert.EqualValues(t, i, w.b.mem.Bytes()[i])
		if i%2 == 1 {
			assert.NoError(t, e.AMShort(idSink, 0, nil))
		}
		require.NoError(t, e.Close())
	}
	for range 4 * defaultSegs { // the segment of the abandoned reply is used again
		c := newCompletion()
		pending, err := w.ab.GetBcopy(make([]byte, 64), mem.Addr(), far, &c.Completion)
		w.waitPending(c, pending, err)
	}
	assert.Len(t, w.b.iface.in, 1)
	require.NoError(t, mem.Close())
}

// TestEP_FailsAlone: a rejection by the peer fails one EP, the death of the peer
// fails all.
func TestEP_FailsAlone(t *testing.T) {
	a, b := openStation(t, Config{CMA: config.No}), openStation(t, Config{})
	var failed []uct.EP
	s := &station{md: a.md, iface: a.open(t, func(e uct.EP, _ error) { failed = append(failed, e) })}
	eps := []*endpoint{s.connect(t, b.exchangedInfo()), s.connect(t, b.exchangedInfo()), s.connect(t, b.exchangedInfo())}
	w := &two{t: t, a: s, b: b}
	mem, far := w.register(4096, uct.AccessAll)
	c := newCompletion()
	pending, err := eps[1].GetBcopy(make([]byte, 64), mem.Addr(), far, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	require.NoError(t, mem.Close()) // before b handles the request
	w.until(func() bool { return len(failed) > 0 })
	assert.Equal(t, []uct.EP{eps[1]}, failed)
	require.NoError(t, eps[0].AMShort(idSink, 0, nil))
	b.close(t)
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return len(failed) == 3 })
	assert.Empty(t, s.iface.links)
	require.NoError(t, s.iface.Close())
	a.close(t)
}

// TestDomain_MapsPeerOnce: the ifaces of a domain share the mappings of a peer.
func TestDomain_MapsPeerOnce(t *testing.T) {
	w := openTwo(t, Config{})
	s := &station{md: w.a.md, iface: w.a.open(t, nil)}
	e := s.connect(t, w.b.exchangedInfo())
	assert.Equal(t, w.ab.arena, e.arena)
	assert.Equal(t, w.ab.table, e.table)
	require.NoError(t, e.Close())
	require.NoError(t, s.iface.Close())
	require.NoError(t, w.ab.PutShort([]byte{1}, w.b.mem.Addr(), w.key))
}

// needArena skips the test if the limits of the user do not permit an arena of n bytes.
func needArena(t testing.TB, n uint64) {
	t.Helper()
	if have := min(limitOf(unix.RLIMIT_AS), limitOf(unix.RLIMIT_FSIZE)); have/2 < n {
		t.Skipf("needs an arena of %d bytes, and limits allow %d (ulimit -v, -f)", n, have)
	}
}

// TestArena_MappedAsFarAsUsed: only the allocated part of a peer's arena uses address space; any
// operation maps new parts.
func TestArena_MappedAsFarAsUsed(t *testing.T) {
	const arena, more = config.MemSize(64 << 30), 16 << 20
	needArena(t, uint64(arena))
	buf, old, iov := testenv.Pattern(8, 1), new(uint64), []uct.IOV{{Buf: make([]byte, 2000)}}
	for name, op := range map[string]func(e *endpoint, raddr uint64, key uct.RKey) (bool, error){
		"put short": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) { return false, e.PutShort(buf, raddr, key) },
		"put bcopy": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) {
			return false, e.PutBcopy(buf, raddr, key)
		},
		"put zcopy": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) { return e.PutZcopy(iov, raddr, key, nil) },
		"get bcopy": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) { return e.GetBcopy(buf, raddr, key, nil) },
		"get zcopy": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) { return e.GetZcopy(iov, raddr, key, nil) },
		"post": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) {
			return false, e.AtomicPost(uct.AtomicAdd, 8, 1, raddr, key)
		},
		"swap": func(e *endpoint, raddr uint64, key uct.RKey) (bool, error) {
			return e.AtomicCSwap(8, 0, 1, old, raddr, key, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := openTwo(t, Config{ArenaSize: arena, FirstTouch: config.No})
			assert.Less(t, w.ab.arenaLen, uint64(8<<20))
			mem, err := w.b.md.Ext().Alloc.Alloc(more, uct.AccessAll)
			require.NoError(t, err)
			pending, err := op(w.ab, mem.Addr()+more-2000, uct.RKey(handle(mem)))
			require.NoError(t, err)
			require.False(t, pending)
			assert.Less(t, w.ab.arenaLen, uint64(2*more))
			require.NoError(t, w.ab.AMShort(idSink, 0, nil), "the control block has moved")
			assert.NoError(t, w.ab.PutShort(buf, w.b.mem.Addr(), w.key))
			require.NoError(t, mem.Close())
		})
	}
}

// roleCramped is a process with little address space left.
const roleCramped = "cramped"

// cramped connects to a peer that has allocated, or allocates after a line, more than fits in the address space, and
// prints the error of the EP.
func cramped(s *station, m exchangedInfo, in *bufio.Reader) {
	t := failNow{}
	require.NoError(t, limitAddresses(256<<20))
	ep, err := s.iface.NewEP(uct.EPParams{DeviceAddr: m.Device, IfaceAddr: m.Iface})
	require.NoError(t, err)
	e := ep.(*endpoint)
	put := func(m exchangedInfo) error {
		for {
			err := e.PutShort([]byte{1}, m.Raddr, s.key(t, m))
			if err != uct.ErrNoResource {
				return err
			}
			s.iface.Progress()
			runtime.Gosched()
		}
	}
	for err == nil {
		err = put(m)
		fmt.Println(strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
		if err == nil {
			m, err = readInfo(in)
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, err, uct.ErrEPFailed)
	require.ErrorIs(t, err, uct.ErrNoMemory)
	require.NoError(t, e.Close())
}

// addressSpace returns the size of the address space that this process uses, in bytes.
func addressSpace() (uint64, error) {
	var pages uint64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &pages)
	}
	return pages * uint64(os.Getpagesize()), err
}

// limitAddresses limits the address space to n more bytes.
func limitAddresses(n uint64) error {
	limit, err := addressSpace()
	if err != nil {
		return err
	}
	limit += n
	return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit})
}

// TestArena_PeerOutOfAddressSpace: if the arena cannot be mapped, the EP fails with the reason, so that another transport
// can be used.
func TestArena_PeerOutOfAddressSpace(t *testing.T) {
	const tooMuch = 1 << 30
	allocate := func(t *testing.T, s *station) uct.Mem {
		mem, err := s.md.Ext().Alloc.Alloc(tooMuch, uct.AccessAll)
		require.NoError(t, err)
		return mem
	}
	cfg := Config{ArenaSize: 2 << 30, FirstTouch: config.No}
	t.Run("connecting", func(t *testing.T) {
		s := openStation(t, cfg)
		mem := allocate(t, s)
		c := start(t, roleCramped, s, "") // reads the first line
		c.End(t)
		require.NoError(t, mem.Close())
		s.close(t)
	})
	t.Run("connected", func(t *testing.T) {
		s := openStation(t, cfg)
		c := start(t, roleCramped, s, "")
		mem := allocate(t, s)
		key, err := mem.PackRKey(nil)
		require.NoError(t, err)
		require.NoError(t, writeInfo(c.In, exchangedInfo{s.iface.DeviceAddr(nil), s.iface.IfaceAddr(nil), mem.Addr() + tooMuch - 8, key}))
		assert.Contains(t, c.Line(t), "map memory that process")
		c.End(t)
		require.NoError(t, mem.Close())
		s.close(t)
	})
}

// TestOpenIface_Limit: the error contains the maximum number of ifaces of a domain.
func TestOpenIface_Limit(t *testing.T) {
	s := openStation(t, Config{})
	defer s.close(t)
	open := func() (uct.Iface, error) {
		return s.md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName})
	}
	for range maxControls - 1 { // the station has one
		it, err := open()
		require.NoError(t, err)
		defer func() { assert.NoError(t, it.Close()) }()
	}
	_, err := open()
	require.ErrorIs(t, err, uct.ErrNoMemory)
	require.ErrorContains(t, err, fmt.Sprintf("the limit of %d open ifaces of this domain is reached", maxControls))
}
