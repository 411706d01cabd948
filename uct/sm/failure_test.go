package sm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

const watchdog = testenv.Watchdog

// open opens a second iface on the domain of s, with OnError.
func (s *station) open(t testing.TB, onError func(uct.EP, error)) *iface {
	it, err := s.md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName, OnError: onError})
	require.NoError(t, err)
	return it.(*iface)
}

func TestPeerKilled_EPFailsOnceAndSoon(t *testing.T) {
	s := openStation(t, Config{})
	var failures []error
	it := s.open(t, func(_ uct.EP, err error) { failures = append(failures, err) })
	other := &station{md: s.md, iface: it, mem: s.mem}
	c := start(t, roleEcho, other, "")
	e := other.connect(t, c.exchangedInfo)
	c.Kill(t)
	from := time.Now()
	testenv.ProgressWithin(t, watchdog, func() bool {
		it.Progress()
		return len(failures) > 0
	})
	if d := time.Since(from); d > 100*time.Millisecond {
		t.Logf("noticed after %v", d) // a loaded machine may take longer
	}
	for range 100 {
		it.Progress()
	}
	require.Len(t, failures, 1)
	assert.ErrorIs(t, failures[0], ucs.ErrConnReset)
	assert.ErrorIs(t, e.AMShort(idSink, 0, nil), uct.ErrEPFailed)
	assert.ErrorIs(t, e.PutShort([]byte{1}, 0, 0), uct.ErrEPFailed)
	assert.ErrorIs(t, e.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error { return nil }}), uct.ErrEPFailed)
	_, err := e.Flush(nil)
	assert.ErrorIs(t, err, uct.ErrEPFailed)
	require.NoError(t, e.Close())
	require.NoError(t, it.Close())
	s.close(t)
}

// TestPeerKilled_WakesSleeper: the end of the socket is an event, without polling and
// timers.
func TestPeerKilled_WakesSleeper(t *testing.T) {
	s := openStation(t, Config{})
	var failure error
	other := &station{md: s.md, iface: s.open(t, func(_ uct.EP, err error) { failure = err }), mem: s.mem}
	c := start(t, roleEcho, other, "")
	e := other.connect(t, c.exchangedInfo)
	for other.iface.Arm(uct.EventRecv|uct.EventSendComp) == uct.ErrBusy {
		other.iface.Progress()
	}
	require.False(t, other.iface.EventPending())
	require.NoError(t, c.Process.Kill())
	sleep(t, other.iface)
	for failure == nil { // the inbound link may have ended first
		other.iface.Progress()
		if failure == nil && other.iface.Arm(uct.EventRecv) == nil {
			sleep(t, other.iface)
		}
	}
	assert.ErrorIs(t, failure, ucs.ErrConnReset)
	_ = c.Wait() // "signal: killed"
	require.NoError(t, e.Close())
	require.NoError(t, other.iface.Close())
	s.close(t)
}

func TestNoListener(t *testing.T) {
	s := openStation(t, Config{})
	var failures []error
	it := s.open(t, func(_ uct.EP, err error) { failures = append(failures, err) })
	gone := s.open(t, nil)
	ep, err := it.NewEP(uct.EPParams{DeviceAddr: gone.DeviceAddr(nil), IfaceAddr: gone.IfaceAddr(nil)})
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	assert.Equal(t, uct.ErrNoResource, ep.(*endpoint).AMShort(idSink, 0, nil), "it dials")
	testenv.ProgressWithin(t, watchdog, func() bool { it.Progress(); return len(failures) > 0 })
	assert.ErrorIs(t, failures[0], uct.ErrUnreachable)
	assert.ErrorIs(t, ep.(*endpoint).AMShort(idSink, 0, nil), uct.ErrEPFailed)
	require.NoError(t, it.Close())
	s.close(t)
}

// whole checks that messages are in order and not torn, and counts them.
type whole struct {
	t    testing.TB
	next uint64
}

func (o *whole) HandleAM(data []byte, _ uct.Desc) bool {
	i := binary.LittleEndian.Uint64(data)
	require.Equal(o.t, o.next, i, "in order")
	o.next++
	for _, b := range data[min(8, len(data)):] {
		if len(data) > inlineLen && b != byte(i) {
			o.t.Errorf("message %d is torn", i)
			return false
		}
	}
	return false
}

// TestStorm: senders are killed at random points. Another sender loses no
// message; messages of the killed senders before their last put have arrived, complete and in order; and
// no file, socket or descriptor of them remains.
func TestStorm(t *testing.T) {
	kills := testenv.Rounds(20, 1000)
	files := shmFiles(t)
	s := openStation(t, Config{})
	steady := openStation(t, Config{})
	const idSteady = 3
	got := &whole{t: t}
	require.NoError(t, s.iface.SetAMHandler(idSteady, got))
	e := steady.connect(t, s.exchangedInfo())
	sent := uint64(0)
	round := func() {
		for e.AMShort(idSteady, sent, nil) == nil {
			sent++
		}
		steady.iface.Progress()
		s.iface.Progress()
	}
	testenv.ProgressWithin(t, watchdog, func() bool { round(); return len(s.iface.in) == 1 })
	rng := rand.New(rand.NewPCG(1, 2))
	acknowledged, descriptors := wordAt(s.mem, 0), testenv.OpenFiles(t)
	var dead []string
	total := uint64(0)
	for range kills {
		from := &whole{t: t}
		require.NoError(t, s.iface.SetAMHandler(idSink, from))
		acknowledged.Store(0)
		c := start(t, roleStorm, s, "")
		target := uint64(rng.IntN(2000))
		testenv.ProgressWithin(t, watchdog, func() bool { round(); return from.next >= target })
		c.Kill(t)
		testenv.ProgressWithin(t, watchdog, func() bool { round(); return len(s.iface.in) == 1 })
		require.GreaterOrEqual(t, from.next, acknowledged.Load(), "acknowledged and lost")
		require.LessOrEqual(t, from.next, acknowledged.Load()+1)
		dead = append(dead, hex.EncodeToString(c.Iface))
		total += from.next
	}
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return got.next == sent })
	assert.Zero(t, s.iface.malformed.Load())
	testenv.ProgressWithin(t, watchdog, func() bool { return testenv.OpenFiles(t) <= descriptors })
	assert.Equal(t, files, shmFiles(t), "/dev/shm")
	sockets, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	for _, gid := range dead {
		assert.NotContains(t, string(sockets), gid, "a socket of the dead")
	}
	t.Logf("%d senders killed after %d messages; %d of the other one", kills, total, sent)
	require.NoError(t, e.Close())
	steady.close(t)
	s.close(t)
}

func shmFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/dev/shm")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if len(e.Name()) >= 4 && e.Name()[:4] == "gucx" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestManyPeers: messages arrive with and without attention words, while the number of peers grows and shrinks.
func TestManyPeers(t *testing.T) {
	const peers, each = 3 * attentionMin, 200
	s := openStation(t, Config{})
	var got [peers]uint64
	require.NoError(t, s.iface.SetAMHandler(idSink, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		v := binary.LittleEndian.Uint64(data)
		require.Equal(t, got[v>>32], v&math32)
		got[v>>32]++
		return false
	})))
	var ifaces [peers]*iface
	var eps [peers]*endpoint
	for i := range peers {
		ifaces[i] = s.open(t, nil)
		eps[i] = (&station{md: s.md, iface: ifaces[i]}).connect(t, s.exchangedInfo())
		require.NoError(t, eps[i].AMShort(idSink, uint64(i)<<32, nil))
	}
	var sent [peers]uint64
	all := func(n uint64) func() bool {
		return func() bool {
			done := true
			for i, e := range eps {
				if sent[i]+1 < n && e.AMShort(idSink, uint64(i)<<32|(sent[i]+1), nil) == nil {
					sent[i]++
				}
				done = done && got[i] == n
			}
			s.iface.Progress()
			return done
		}
	}
	testenv.ProgressWithin(t, watchdog, all(each))
	assert.True(t, s.iface.marked)
	for i := 1; i < peers; i++ {
		require.NoError(t, ifaces[i].Close())
	}
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return len(s.iface.in) == 1 })
	assert.False(t, s.iface.marked)
	require.NoError(t, eps[0].AMShort(idSink, each, nil))
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return got[0] == each+1 })
	require.NoError(t, ifaces[0].Close())
	s.close(t)
}

const math32 = 1<<32 - 1

// sleep waits for the event descriptor, as a caller of Arm does.
func sleep(t testing.TB, it *iface) {
	t.Helper()
	require.True(t, testenv.Readable(t, it.EventFD(), watchdog), "slept for good")
}

// TestWake_NothingIsLost: a receiver sleeps and a sender wakes it in turns; a lost wake-up
// would be a sleep without end.
func TestWake_NothingIsLost(t *testing.T) {
	w := openTwo(t, Config{})
	rounds := testenv.Rounds(500, 20_000)
	got := 0
	require.NoError(t, w.b.iface.SetAMHandler(idSink, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { got++; return false })))
	go1, done := make(chan int, 1), make(chan error, 1)
	go func() {
		for range rounds {
			<-go1
			if err := w.ab.AMShort(idSink, 1, nil); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	slept := 0
	for n := range rounds {
		go1 <- n
		for got <= n {
			if w.b.iface.Progress() > 0 {
				continue
			}
			if err := w.b.iface.Arm(uct.EventRecv); err == uct.ErrBusy {
				runtime.Gosched()
				continue
			}
			slept++
			sleep(t, w.b.iface)
			testenv.ProgressWithin(t, watchdog, w.b.iface.EventPending)
		}
	}
	require.NoError(t, <-done)
	t.Logf("slept %d times in %d rounds", slept, rounds)
}

// TestWake_SenderWaitsForRoom: the receiver wakes a sender that sleeps on a full ring.
func TestWake_SenderWaitsForRoom(t *testing.T) {
	w := openTwo(t, Config{FIFOSize: 4})
	for w.ab.AMShort(idSink, 0, nil) == nil {
	}
	dispatched := false
	r := &uct.PendingReq{Func: func(*uct.PendingReq) error {
		err := w.ab.AMShort(idSink, 1, nil)
		dispatched = err == nil
		return err
	}}
	require.NoError(t, w.ab.AddPending(r))
	w.a.iface.Progress()
	for w.a.iface.Arm(uct.EventSendComp) == uct.ErrBusy {
		w.a.iface.Progress()
	}
	assert.False(t, w.a.iface.EventPending())
	testenv.ProgressWithin(t, watchdog, func() bool { return w.b.iface.Progress() > 0 })
	sleep(t, w.a.iface)
	assert.True(t, w.a.iface.EventPending())
	w.a.iface.Progress()
	assert.True(t, dispatched)
}

func TestDataPath_AllocatesNothing(t *testing.T) {
	cfg := Config{}
	if cmaHere() == nil {
		cfg.CMA = config.Yes
	}
	w := openTwo(t, cfg)
	require.NoError(t, w.b.iface.SetAMHandler(idSink, &pong{}))
	payload, word := make([]byte, 8), new(uint64)
	k, buf, c := &blank{make([]byte, 500)}, make([]byte, 500), &uct.Completion{}
	raddr := w.b.mem.Addr()
	iov := []uct.IOV{{Buf: make([]byte, 300)}}
	for name, op := range map[string]func() error{
		"am short":  func() error { return w.ab.AMShort(idSink, 1, payload) },
		"am bcopy":  func() error { _, err := w.ab.AMBcopy(idSink, k); return err },
		"am zcopy":  func() error { _, err := w.ab.AMZcopy(idSink, payload, iov, c); return err },
		"put short": func() error { return w.ab.PutShort(payload, raddr, w.key) },
		"put bcopy": func() error { return w.ab.PutBcopy(buf, raddr, w.key) },
		"put zcopy": func() error { _, err := w.ab.PutZcopy(iov, raddr, w.key, c); return err },
		"get short": func() error {
			if cfg.CMA != config.Yes {
				return nil
			}
			return w.ab.GetShort(payload, raddr, w.key)
		},
		"get bcopy": func() error { _, err := w.ab.GetBcopy(buf, raddr, w.key, c); return err },
		"atomic":    func() error { return w.ab.AtomicPost(uct.AtomicXor, 8, 1, raddr, w.key) },
		"fetch": func() error {
			_, err := w.ab.AtomicFetch(uct.AtomicAdd, 4, 1, word, raddr, w.key, c)
			return err
		},
		"flush": func() error { _, err := w.ab.Flush(c); return err },
	} {
		testenv.NoAllocs(t, name, func() {
			require.NoError(t, op())
			w.b.iface.Progress()
			w.a.iface.Progress()
		})
	}
}
