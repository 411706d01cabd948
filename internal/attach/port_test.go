package attach

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

const (
	testService  = "test"
	testLayout   = 7
	testLinkLen  = 64 << 10
	testTableLen = 32 << 10
	testArenaLen = 1 << 20
	watchdog     = testenv.Watchdog
)

// station is a port with what it gives away, and the inbound links it got.
type station struct {
	*Port
	gid   [16]byte
	table *memfd.Segment
	arena *memfd.Segment
	wake  *Waker
	in    chan *Inbound
}

// anyGID is one that nobody else on this host has, not even another run of these tests.
func anyGID() (gid [16]byte) {
	_, _ = rand.Read(gid[:])
	return gid
}

// openStation makes a port with fresh segments; edit may change its configuration.
func openStation(edit func(*Config)) (*station, error) {
	s := &station{gid: anyGID(), in: make(chan *Inbound, 64)}
	var errs [4]error
	s.table, errs[0] = memfd.Create("test-table", testTableLen, memfd.PeersRead)
	s.arena, errs[1] = memfd.Create("test-arena", testArenaLen, memfd.PeersWrite)
	s.wake, errs[2] = NewWaker()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	cfg := Config{Service: testService, GID: s.gid, Layout: testLayout, Table: s.table, Arena: s.arena, LinkLen: testLinkLen,
		WakeFD: s.wake.PeerFD(), HandshakeTimeout: watchdog, OnLink: func(in *Inbound) error { s.in <- in; return nil }, Local: localStations}
	if edit != nil {
		edit(&cfg)
	}
	s.gid = cfg.GID
	s.Port, errs[3] = Listen(cfg)
	return s, errs[3]
}

// newStation is openStation for a test, which closes it.
func newStation(t testing.TB, edit func(*Config)) *station {
	t.Helper()
	s, err := openStation(edit)
	require.NoError(t, err)
	t.Cleanup(func() { s.close(t) })
	return s
}

// close may be called early.
func (s *station) close(t testing.TB) {
	t.Helper()
	if s.table == nil {
		return
	}
	assert.NoError(t, s.Port.Close())
	assert.NoError(t, s.table.Close())
	assert.NoError(t, s.arena.Close())
	assert.NoError(t, s.wake.Close())
	s.table = nil
}

func (s *station) dial(t testing.TB, to [16]byte) *Outbound {
	t.Helper()
	out, err := s.Dial(context.Background(), to)
	require.NoError(t, err)
	return out
}

// within waits for a channel and fails the test when nothing comes.
func within[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(watchdog):
		require.FailNow(t, "nothing came", what)
		panic("not reached")
	}
}

func TestDial_SharesMemoryBothWays(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	out := a.dial(t, b.gid)
	in := within(t, b.in, "inbound link")

	assert.Equal(t, b.gid, out.PeerGID)
	assert.Equal(t, a.gid, in.PeerGID)
	assert.Equal(t, os.Getpid(), out.PeerPID)
	assert.Equal(t, os.Getpid(), in.PeerPID)
	assert.EqualValues(t, os.Geteuid(), in.PeerUID)
	assert.Len(t, out.Table.Bytes(), testTableLen)
	assert.Len(t, out.Arena.Bytes(), testArenaLen)
	assert.Len(t, in.Seg.Bytes(), testLinkLen)
	assert.GreaterOrEqual(t, len(in.Control.Bytes()), os.Getpagesize())

	b.table.Bytes()[5] = 11
	out.Arena.Bytes()[testArenaLen-1] = 12
	out.Seg.Bytes()[9] = 13
	in.Seg.Bytes()[10] = 14
	in.Control.Bytes()[0] = 15
	assert.EqualValues(t, 11, out.Table.Bytes()[5])
	assert.EqualValues(t, 12, b.arena.Bytes()[testArenaLen-1])
	assert.EqualValues(t, 13, in.Seg.Bytes()[9])
	assert.EqualValues(t, 14, out.Seg.Bytes()[10])
	assert.EqualValues(t, 15, a.arena.Bytes()[0])

	require.NoError(t, Wake(out.WakeFD))
	require.NoError(t, Wake(in.WakeFD))
	assert.EqualValues(t, 1, drain(t, a.wake))
	assert.EqualValues(t, 1, drain(t, b.wake))
	assert.Equal(t, Stats{Accepted: 1}, b.Stats())
}

// drain returns how many wake-ups were written, at most 8, and drops them.
func drain(t testing.TB, w *Waker) int {
	t.Helper()
	var b [8]byte
	n, err := unix.Read(w.FD(), b[:])
	require.NoError(t, err)
	return n
}

// TestDial_ExactLimits: a dialer maps tables and arenas that are as long as it allows, and no longer ones.
func TestDial_ExactLimits(t *testing.T) {
	b := newStation(t, nil)
	for _, tt := range []struct {
		table, arena int
		want         error
	}{
		{testTableLen, testArenaLen, nil},
		{testTableLen - 1, testArenaLen, memfd.ErrSize},
		{testTableLen, testArenaLen - 1, memfd.ErrSize},
	} {
		a := newStation(t, func(c *Config) { c.MaxTableLen, c.MaxArenaLen = tt.table, tt.arena })
		_, err := a.Dial(t.Context(), b.gid)
		assert.ErrorIs(t, err, tt.want, "%v", tt)
		assert.Equal(t, tt.want == nil, err == nil, "%v: %v", tt, err)
	}
}

func TestDial_Self(t *testing.T) {
	a := newStation(t, nil)
	out := a.dial(t, a.gid)
	in := within(t, a.in, "inbound link")
	out.Seg.Bytes()[0] = 1
	assert.EqualValues(t, 1, in.Seg.Bytes()[0])
}

func TestDial_NoPort(t *testing.T) {
	a := newStation(t, nil)
	_, err := a.Dial(context.Background(), [16]byte{1})
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
}

func TestClose_NotifiesPeer(t *testing.T) {
	for _, side := range []string{"dialer", "acceptor"} {
		t.Run(side, func(t *testing.T) {
			a, b := newStation(t, nil), newStation(t, nil)
			out := a.dial(t, b.gid)
			in := within(t, b.in, "inbound link")
			closer, other := out.Link, in.Link
			if side == "acceptor" {
				closer, other = in.Link, out.Link
			}
			hook, own := make(chan struct{}), make(chan struct{}, 1)
			other.AfterDown(func() { close(hook) })
			closer.AfterDown(func() { own <- struct{}{} })
			require.True(t, other.Up())

			require.NoError(t, closer.Close())
			require.NoError(t, closer.Close(), "second close")
			within(t, hook, "AfterDown")
			within(t, other.Done(), "Done of the other side")
			within(t, closer.Done(), "Done of the closing side")
			assert.False(t, other.Up())
			assert.Empty(t, own, "AfterDown of the closing side")

			late := false
			other.AfterDown(func() { late = true })
			assert.True(t, late, "AfterDown on a link that is down")
			for _, l := range []*Link{closer, other} {
				require.NoError(t, l.Close())
				l.AfterDown(func() { t.Error("called after Close") })
			}
		})
	}
}

func TestDial_CallsOnLinkFirst(t *testing.T) {
	var told atomic.Bool
	b := newStation(t, func(c *Config) {
		c.OnLink = func(*Inbound) error {
			runtime.Gosched()
			told.Store(true)
			return nil
		}
	})
	newStation(t, nil).dial(t, b.gid)
	assert.True(t, told.Load())
}

func TestDial_Refused(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(dialer, acceptor *Config)
		want Reason
	}{
		{"layout", func(d, _ *Config) { d.Layout++ }, ReasonLayout},
		{"link length", func(d, _ *Config) { d.LinkLen *= 2 }, ReasonLayout},
		{"arena too small for control", func(_, a *Config) { a.ControlLen = testArenaLen; a.MaxArenaLen = testArenaLen / 2 }, ReasonSegments},
		{"owner says no", func(_, a *Config) { a.OnLink = func(*Inbound) error { return errors.New("no") } }, ReasonOwner},
		{"no owner", func(_, a *Config) { a.OnLink = nil }, ReasonOwner},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := testenv.OpenFiles(t)
			var other Config
			b := newStation(t, func(c *Config) { tt.edit(&other, c) })
			a := newStation(t, func(c *Config) { tt.edit(c, &other) })
			_, err := a.Dial(context.Background(), b.gid)
			assert.ErrorIs(t, err, ucs.ErrRejected)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, tt.want, refused.Reason)
			assert.ErrorContains(t, err, tt.want.String())
			assert.Equal(t, Stats{Refused: 1}, b.Stats())
			a.close(t)
			b.close(t)
			untilOpenFiles(t, before)
		})
	}
}

func TestDial_TooManyLinks(t *testing.T) {
	a := newStation(t, nil)
	b := newStation(t, func(c *Config) { c.MaxLinks = 1 })
	first := a.dial(t, b.gid)
	in := within(t, b.in, "inbound link")

	_, err := a.Dial(context.Background(), b.gid)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, ReasonLimit, refused.Reason)

	require.NoError(t, first.Close())
	within(t, in.Done(), "hang-up")
	_, err = a.Dial(context.Background(), b.gid)
	require.ErrorAs(t, err, &refused, "a link that is down counts until it is closed")
	require.NoError(t, in.Close())
	a.dial(t, b.gid)
}

// TestHandshake_NoDescriptorForPipe: a process that has no descriptor for the peer's pipe has no room. The peer has
// kept to the protocol, on either side.
func TestHandshake_NoDescriptorForPipe(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	copies := func(fds ...int) (r rights) {
		for _, fd := range fds {
			c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			require.NoError(t, err)
			r = append(r, c)
		}
		t.Cleanup(r.close)
		return r
	}
	out := a.newOutbound(nil, peer{}, b.gid)
	welcome := frame{kind: kindWelcome, layout: testLayout, from: b.gid, to: a.gid,
		len0: uint64(len(b.table.Bytes())), arenaLen: uint64(len(b.arena.Bytes()))}
	fds := copies(b.table.FD(), b.arena.FD(), b.wake.PeerFD())
	testenv.WithoutDescriptors(t, func() {
		err := a.acceptReply(out, &welcome, fds)
		assert.ErrorIs(t, err, unix.EMFILE)
		assert.NotErrorIs(t, err, ErrProtocol)
	})
	assert.NoError(t, out.release())

	seg, err := memfd.Create("link", testLinkLen, memfd.PeersWrite)
	require.NoError(t, err)
	defer seg.Close()
	l := newLink(b.Port, nil, peer{}, a.gid)
	hello := frame{kind: kindHello, layout: testLayout, from: a.gid, to: b.gid, len0: testLinkLen}
	fds = copies(seg.FD(), a.arena.FD(), a.wake.PeerFD())
	testenv.WithoutDescriptors(t, func() { assert.Equal(t, ReasonLimit, b.admit(l, &hello, fds)) })
	b.forget(l)
	assert.NoError(t, l.release())
}

// TestDial_FewDescriptors: whichever descriptor of a handshake is the first that is too many, the dial says so, or
// waits for the acceptor. The error never says that the peer does not speak the protocol: dialers would then not try
// again.
func TestDial_FewDescriptors(t *testing.T) {
	for n := 0; ; n++ {
		a, b := newStation(t, nil), newStation(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var err error
		testenv.WithDescriptors(t, n, func() { _, err = a.Dial(ctx, b.gid) })
		if err == nil {
			break
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			assert.Equal(t, ReasonLimit, refused.Reason, n)
		} else if !errors.Is(err, ucs.ErrTimedOut) {
			assert.ErrorIs(t, err, ucs.ErrNoMemory, n)
			assert.NotErrorIs(t, err, ErrProtocol, n)
		}
	}
}

// withoutFD is a segment that cannot be passed to a peer.
func withoutFD(t *testing.T, sharing memfd.Sharing) *memfd.Segment {
	t.Helper()
	s, err := memfd.Create("without", testArenaLen, sharing)
	require.NoError(t, err)
	require.NoError(t, s.DropFD())
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestListen_Invalid(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Config)
	}{
		{"zero GID", func(c *Config) { c.GID = [16]byte{} }},
		{"no table", func(c *Config) { c.Table = nil }},
		{"no arena", func(c *Config) { c.Arena = nil }},
		{"table without a descriptor", func(c *Config) { c.Table = withoutFD(t, memfd.PeersRead) }},
		{"arena without a descriptor", func(c *Config) { c.Arena = withoutFD(t, memfd.PeersWrite) }},
		{"no link length", func(c *Config) { c.LinkLen = 0 }},
		{"negative limit", func(c *Config) { c.MaxLinks = -1 }},
		{"negative timeout", func(c *Config) { c.HandshakeTimeout = -1 }},
		{"control larger than arena", func(c *Config) { c.ControlLen = testArenaLen + 1 }},
		{"wake is no eventfd", func(c *Config) { c.WakeFD = c.Arena.FD() }},
		{"wake is closed", func(c *Config) { c.WakeFD = 1 << 20 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newStation(t, nil)
			cfg := a.cfg
			cfg.GID[0]++
			tt.edit(&cfg)
			_, err := Listen(cfg)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		})
	}
}

func TestListen_GIDInUse(t *testing.T) {
	for name, edit := range map[string]func(*Config){"abstract": nil, "file": inDir(testenv.SocketDir(t))} {
		t.Run(name, func(t *testing.T) {
			a := newStation(t, edit)
			_, err := Listen(a.cfg)
			assert.ErrorIs(t, err, ucs.ErrBusy)
			require.NoError(t, a.Port.Close())
			p, err := Listen(a.cfg)
			require.NoError(t, err, "the name is free again at once")
			require.NoError(t, p.Close())
		})
	}
}

// TestForeignUser: a port neither answers nor connects to a process of a user that it does not allow.
func TestForeignUser(t *testing.T) {
	strict := &Port{cfg: Config{Service: testService, AllowUIDs: []uint32{testenv.OtherUser}}} // not even this one
	conn, other, _ := connPair(t)
	assert.True(t, strict.dispatch(conn), "it accepts others")
	_, err := other.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, Stats{Foreign: 1}, strict.Stats())

	gid := anyGID()
	l, err := net.ListenUnix(network, socketAddr("", testService, testenv.OtherUser, gid))
	require.NoError(t, err)
	defer l.Close()
	_, _, err = strict.connect(t.Context(), gid, &dialSlot{})
	assert.ErrorIs(t, err, ErrForeignUser)
	accepted, err := l.AcceptUnix()
	require.NoError(t, err)
	defer accepted.Close()
	_, err = accepted.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
}

// TestAfterDown_Closed: a function that is given to a link that this side has closed is not called when the link
// goes down.
func TestAfterDown_Closed(t *testing.T) {
	conn, _, who := connPair(t)
	l := newLink(newStation(t, nil).Port, conn, who, anyGID())
	require.NoError(t, l.Close())
	l.AfterDown(func() { t.Error("called") })
	l.goDown(false)
	assert.False(t, l.Up())
}

func TestPortClose_ClosesLinksAndRefusesDials(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	out := a.dial(t, b.gid)
	in := within(t, b.in, "inbound link")
	require.NoError(t, a.Port.Close())
	require.NoError(t, a.Port.Close(), "second close")
	assert.False(t, out.Up())
	within(t, in.Done(), "hang-up")
	_, err := a.Dial(context.Background(), b.gid)
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

// TestDial_CrossAndClose has many ports dial each other, both ways at once, while
// links close at random.
func TestDial_CrossAndClose(t *testing.T) {
	before := testenv.OpenFiles(t)
	const ports, dials, keep = 4, 8, 4 // one of keep stays open
	var all [ports]*station
	for i := range all {
		all[i] = newStation(t, func(c *Config) { c.OnLink = func(in *Inbound) error { return nil } })
	}
	var wg sync.WaitGroup
	for i := range ports * ports {
		wg.Go(func() {
			from, to := all[i/ports], all[i%ports]
			for k := range dials {
				out, err := from.Dial(context.Background(), to.gid)
				if assert.NoError(t, err) && k%keep != 0 {
					assert.NoError(t, out.Close())
				}
			}
		})
	}
	wg.Wait()
	for _, s := range all {
		assert.EqualValues(t, ports*dials, s.Stats().Accepted)
		s.close(t)
	}
	untilOpenFiles(t, before)
}

// TestListen_Defaults: limits that are not set have those of the documentation.
func TestListen_Defaults(t *testing.T) {
	a := newStation(t, func(c *Config) { c.HandshakeTimeout, c.LinkLen = 0, 1 })
	cfg := a.cfg
	assert.Equal(t, 5*time.Second, cfg.HandshakeTimeout)
	assert.Equal(t, os.Getpagesize(), cfg.LinkLen)
	assert.Equal(t, os.Getpagesize(), cfg.ControlLen)
	assert.Equal(t, []int{1024, 64, 1 << 30, 1 << 40}, []int{cfg.MaxLinks, cfg.MaxHandshakes, cfg.MaxTableLen, cfg.MaxArenaLen})
	assert.Equal(t, 64, cap(a.slots))
	assert.Equal(t, []uint32{uint32(os.Geteuid())}, cfg.AllowUIDs)
	assert.NotNil(t, cfg.Mapper)
}

// TestListen_Service: the name of a service has 1 to 16 bytes.
func TestListen_Service(t *testing.T) {
	for n, ok := range map[int]bool{0: false, 1: true, maxService: true, maxService + 1: false} {
		cfg := newStation(t, nil).cfg
		cfg.Service, cfg.GID = strings.Repeat("s", n), anyGID()
		p, err := Listen(cfg)
		if !ok {
			assert.ErrorIs(t, err, ucs.ErrInvalidParam)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
}

// TestListen_LongestControl: an acceptor may map as much of an arena as its own has.
func TestListen_LongestControl(t *testing.T) {
	a := newStation(t, func(c *Config) { c.ControlLen = testArenaLen })
	newStation(t, nil).dial(t, a.gid)
	assert.Len(t, within(t, a.in, "inbound link").Control.Bytes(), testArenaLen)
}

// TestDial_WelcomeNotSent: a port that cannot send its welcome hangs up, and so the dialer is not left waiting.
// The owner's link ends.
func TestDial_WelcomeNotSent(t *testing.T) {
	var b *station
	b = newStation(t, func(c *Config) {
		c.OnLink = func(in *Inbound) error {
			b.in <- in
			return b.wake.Close() // a message with a descriptor that is closed is not sent
		}
	})
	_, err := newStation(t, nil).Dial(t.Context(), b.gid)
	assert.ErrorIs(t, err, ucs.ErrConnReset)
	in := within(t, b.in, "inbound link")
	within(t, in.Done(), "end of the link")
	require.NoError(t, in.Close())
}

// TestDial_OwnerClosesAtOnce: an owner that closes a link while it is told of it refuses the link.
func TestDial_OwnerClosesAtOnce(t *testing.T) {
	b := newStation(t, func(c *Config) { c.OnLink = func(in *Inbound) error { return in.Close() } })
	_, err := newStation(t, nil).Dial(t.Context(), b.gid)
	assert.Error(t, err)
	testenv.ProgressWithin(t, watchdog, func() bool { return len(b.slots) == 0 })
	assert.Empty(t, b.allLinks())
	assert.Equal(t, Stats{Refused: 1}, b.Stats())
}

// TestDial_TimesOut: nothing watches the time of a handshake that is over.
func TestDial_TimesOut(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	a.dial(t, b.gid)
	_, err := a.Dial(t.Context(), anyGID())
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	testenv.ProgressWithin(t, watchdog, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("timelimit.within"))
	})
}

// TestDial_HelloNotSent: a dialer that cannot send its hello says why, and does not wait for an answer.
func TestDial_HelloNotSent(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	a.cfg.WakeFD = 1 << 20
	_, err := a.Dial(t.Context(), b.gid)
	assert.ErrorIs(t, err, unix.EBADF)
}

// TestLink_ArenaAccess: only an arena of this user's is mapped with huge pages.
func TestLink_ArenaAccess(t *testing.T) {
	own := Link{PeerUID: uint32(os.Geteuid())}
	other := Link{PeerUID: own.PeerUID + 1}
	assert.Equal(t, memfd.ReadWrite|memfd.HugePages, own.arenaAccess())
	assert.Equal(t, memfd.ReadWrite, other.arenaAccess())
}
