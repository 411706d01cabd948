package attach

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// raw is a client that says what it likes.
type raw struct{ *net.UnixConn }

func (s *station) connect(t testing.TB) raw {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, socketAddr("", testService, uint32(os.Geteuid()), s.gid))
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(watchdog)))
	t.Cleanup(func() { _ = conn.Close() })
	return raw{conn}
}

// untilHangUp reads until the other side has closed, closes, and returns the last
// message.
func (r raw) untilHangUp(t testing.TB) []byte {
	t.Helper()
	var last []byte
	for {
		b := make([]byte, 2*frameLen)
		n, err := r.Read(b)
		if err != nil {
			require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "not hung up on")
			require.NoError(t, r.Close())
			return last
		}
		last = b[:n]
	}
}

// hello is a valid one to s, with descriptors that are valid too.
func (s *station) hello(t testing.TB) (*frame, []int) {
	t.Helper()
	seg, err := memfd.Create("raw-link", testLinkLen, memfd.PeersWrite)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, seg.Close()) })
	return &frame{kind: kindHello, layout: testLayout, from: [16]byte{9}, to: s.gid,
		len0: testLinkLen, link: newLinkID()}, []int{seg.FD(), s.arena.FD(), s.wake.PeerFD()}
}

func TestHostile_Hello(t *testing.T) {
	unsealed, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	defer func() { _ = unix.Close(unsealed) }()
	require.NoError(t, unix.Ftruncate(unsealed, testLinkLen))
	small, err := memfd.Create("small", testLinkLen/2, memfd.PeersWrite)
	require.NoError(t, err)
	defer func() { _ = small.Close() }()
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	defer func() { _ = unix.Close(event) }()

	garbage, refused := Stats{Garbage: 1}, Stats{Refused: 1}
	for _, tt := range []struct {
		name   string
		edit   func(b []byte, f *frame, fds []int) ([]byte, []int)
		want   Stats
		reason Reason
	}{
		{"wrong magic", func(b []byte, _ *frame, fds []int) ([]byte, []int) { b[0] = 'x'; return b, fds }, garbage, 0},
		{"too short", func(b []byte, _ *frame, fds []int) ([]byte, []int) { return b[:63], fds }, garbage, 0},
		{"too long", func(b []byte, _ *frame, fds []int) ([]byte, []int) { return append(b, 0), fds }, garbage, 0},
		{"empty with descriptors", func(_ []byte, _ *frame, fds []int) ([]byte, []int) { return nil, fds }, garbage, 0},
		{"no descriptors", func(b []byte, _ *frame, _ []int) ([]byte, []int) { return b, nil }, garbage, 0},
		{"one missing", func(b []byte, _ *frame, fds []int) ([]byte, []int) { return b, fds[:2] }, garbage, 0},
		{"one too many", func(b []byte, _ *frame, fds []int) ([]byte, []int) { return b, append(fds, fds[0]) }, garbage, 0},
		{"many too many", func(b []byte, _ *frame, fds []int) ([]byte, []int) {
			for len(fds) < 253 { // SCM_MAX_FD
				fds = append(fds, fds[0])
			}
			return b, fds
		}, garbage, 0},
		{"a welcome", func(_ []byte, f *frame, fds []int) ([]byte, []int) { f.kind = kindWelcome; return f.encode(), fds }, garbage, 0},
		{"a refuse", func(_ []byte, f *frame, _ []int) ([]byte, []int) {
			return (&frame{kind: kindRefuse, reason: 1, from: f.from}).encode(), nil
		}, garbage, 0},
		{"other version", func(b []byte, _ *frame, fds []int) ([]byte, []int) { b[frameOffVer]++; return b, fds }, refused, ReasonVersion},
		{"other address", func(_ []byte, f *frame, fds []int) ([]byte, []int) { f.to[0]++; return f.encode(), fds }, refused, ReasonAddress},
		{"other layout", func(_ []byte, f *frame, fds []int) ([]byte, []int) { f.layout++; return f.encode(), fds }, refused, ReasonLayout},
		{"other link length", func(_ []byte, f *frame, fds []int) ([]byte, []int) { f.len0 = 1 << 62; return f.encode(), fds }, refused, ReasonLayout},
		{"unsealed link", func(b []byte, _ *frame, fds []int) ([]byte, []int) { fds[0] = unsealed; return b, fds }, refused, ReasonSegments},
		{"small link", func(b []byte, _ *frame, fds []int) ([]byte, []int) { fds[0] = small.FD(); return b, fds }, refused, ReasonSegments},
		{"link is no memory", func(b []byte, _ *frame, fds []int) ([]byte, []int) { fds[0] = fds[2]; return b, fds }, refused, ReasonSegments},
		{"arena is no memory", func(b []byte, _ *frame, fds []int) ([]byte, []int) { fds[1] = fds[2]; return b, fds }, refused, ReasonSegments},
		{"wake is no pipe", func(b []byte, _ *frame, fds []int) ([]byte, []int) { fds[2] = fds[0]; return b, fds }, refused, ReasonSegments},
		{"wake is an eventfd", func(b []byte, _ *frame, fds []int) ([]byte, []int) { fds[2] = event; return b, fds }, refused, ReasonSegments},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := testenv.OpenFiles(t)
			s := newStation(t, nil)
			f, fds := s.hello(t)
			b, fds := tt.edit(f.encode(), f, fds)
			c := s.connect(t)
			_, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
			require.NoError(t, err)
			last := c.untilHangUp(t)

			assert.Equal(t, tt.want, s.Stats())
			assert.Empty(t, s.in)
			s.close(t)
			untilOpenFiles(t, before+1) // the test's link segment, and no descriptor that was sent
			if tt.reason == 0 {
				assert.Empty(t, last, "garbage gets no answer")
				return
			}
			reply, err := decodeFrame(last)
			require.NoError(t, err)
			assert.Equal(t, frame{kind: kindRefuse, reason: tt.reason, from: s.gid}, reply)
		})
	}
}

func TestHostile_TalksAfterHandshake(t *testing.T) {
	s := newStation(t, nil)
	f, fds := s.hello(t)
	c := s.connect(t)
	require.NoError(t, send(c.UnixConn, f, fds...))
	in := within(t, s.in, "inbound link")
	require.True(t, in.Up())
	require.NoError(t, send(c.UnixConn, f, fds...))
	within(t, in.Done(), "end of the link")
	assert.False(t, in.PeerStays(), "it has not said so")
}

func TestHostile_SilentPeerIsDropped(t *testing.T) {
	s := newStation(t, func(c *Config) { c.HandshakeTimeout = 20 * time.Millisecond })
	assert.Empty(t, s.connect(t).untilHangUp(t))
	assert.Equal(t, Stats{TimedOut: 1}, s.Stats())
}

func TestHostile_SilentPeersOnlyDelay(t *testing.T) {
	s := newStation(t, func(c *Config) { c.HandshakeTimeout, c.MaxHandshakes = 20*time.Millisecond, 2 })
	a := newStation(t, func(c *Config) { c.HandshakeTimeout = watchdog })
	for range 4 {
		s.connect(t)
	}
	_, err := a.Dial(context.Background(), s.gid)
	for errors.Is(err, ucs.ErrConnReset) { // a dialer that waits for a processor is silent too
		_, err = a.Dial(context.Background(), s.gid)
	}
	require.NoError(t, err)
	assert.Positive(t, s.Stats().Accepted)
}

// TestHostile_GarbageLeaksNothing also makes sure that the port still works after it.
func TestHostile_GarbageLeaksNothing(t *testing.T) {
	const connections = 1000
	before := testenv.OpenFiles(t)
	s, a := newStation(t, nil), newStation(t, nil)
	_, fds := s.hello(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range connections {
		c := s.connect(t)
		b := make([]byte, rng.IntN(3*frameLen))
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		if i%4 != 0 { // every fourth hangs up without a word
			_, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds[:rng.IntN(4)]...), nil)
			require.NoError(t, err)
		}
		require.NoError(t, c.CloseWrite())
		c.untilHangUp(t)
	}
	assert.Equal(t, Stats{Garbage: connections}, s.Stats())
	a.dial(t, s.gid)
	s.close(t)
	a.close(t)
	untilOpenFiles(t, before+1) // the test's link segment, and nothing else
}

// squat listens on a name and answers the first hello by what reply says.
func squat(t *testing.T, gid [16]byte, reply func(conn *net.UnixConn, hello frame)) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", socketAddr("", testService, uint32(os.Geteuid()), gid))
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		hello, fds, err := receive(conn)
		if errors.Is(err, io.EOF) || errors.Is(err, errMalformed) {
			return // the dialer has given up before it said anything, but perhaps that it stays
		}
		if assert.NoError(t, err) {
			fds.close()
			reply(conn, hello)
			_, _ = conn.Read(make([]byte, 1)) // until the dialer hangs up
		}
	}()
}

func TestSquatter(t *testing.T) {
	lender := newStation(t, nil) // its segments are what a squatter offers
	gid := anyGID()
	good := func(h frame) *frame {
		return &frame{kind: kindWelcome, layout: testLayout, from: gid, to: h.from, len0: testTableLen, arenaLen: testArenaLen}
	}
	answer := func(edit func(f *frame, fds []int)) func(*net.UnixConn, frame) {
		return func(conn *net.UnixConn, h frame) {
			f, fds := good(h), []int{lender.table.FD(), lender.arena.FD(), lender.wake.PeerFD()}
			edit(f, fds)
			assert.NoError(t, send(conn, f, fds...))
		}
	}
	for _, tt := range []struct {
		name  string
		reply func(conn *net.UnixConn, hello frame)
		want  error
	}{
		{"wrong magic", func(c *net.UnixConn, h frame) { b := good(h).encode(); b[0]++; _, _ = c.Write(b) }, ErrProtocol},
		{"other version", func(c *net.UnixConn, h frame) { b := good(h).encode(); b[frameOffVer]++; _, _ = c.Write(b) }, ErrProtocol},
		{"nonsense", func(c *net.UnixConn, _ frame) { _, _ = c.Write([]byte("hello, world")) }, ErrProtocol},
		{"no descriptors", func(c *net.UnixConn, h frame) { _ = send(c, good(h)) }, ErrProtocol},
		{"hangs up", func(c *net.UnixConn, _ frame) { _ = c.Close() }, ucs.ErrConnReset},
		{"silent", func(*net.UnixConn, frame) {}, ucs.ErrTimedOut},
		{"refuses", func(c *net.UnixConn, _ frame) { _ = send(c, &frame{kind: kindRefuse, reason: 99}) }, ucs.ErrRejected},
		{"sends a hello", answer(func(f *frame, _ []int) { f.kind = kindHello }), ErrProtocol},
		{"other GID", answer(func(f *frame, _ []int) { f.from[0]++ }), ErrProtocol},
		{"for somebody else", answer(func(f *frame, _ []int) { f.to[0]++ }), ErrProtocol},
		{"other layout", answer(func(f *frame, _ []int) { f.layout++ }), ErrProtocol},
		{"table length lies", answer(func(f *frame, _ []int) { f.len0++ }), memfd.ErrSize},
		{"arena length lies", answer(func(f *frame, _ []int) { f.arenaLen++ }), memfd.ErrSize},
		{"huge table", answer(func(f *frame, _ []int) { f.len0 = 1 << 63 }), memfd.ErrSize},
		{"huge arena", answer(func(f *frame, _ []int) { f.arenaLen = 1 << 63 }), memfd.ErrSize},
		{"table is no memory", answer(func(_ *frame, fds []int) { fds[0] = fds[2] }), memfd.ErrKind},
		{"arena not writable", answer(func(f *frame, fds []int) { fds[1], f.arenaLen = fds[0], testTableLen }), unix.EACCES},
		{"wake is no pipe", answer(func(_ *frame, fds []int) { fds[2] = fds[0] }), ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := testenv.OpenFiles(t)
			t.Run("dial", func(t *testing.T) {
				a := newStation(t, func(c *Config) { c.HandshakeTimeout = timeoutFor(tt.want) })
				squat(t, gid, tt.reply)
				_, err := a.Dial(context.Background(), gid)
				assert.ErrorIs(t, err, tt.want)
			})
			untilOpenFiles(t, before)
		})
	}
}

// timeoutFor is short where a timeout is what the test waits for.
func timeoutFor(want error) time.Duration {
	if want == ucs.ErrTimedOut {
		return 20 * time.Millisecond
	}
	return watchdog
}

// squatSilently accepts one dialer and never answers it. The channel tells of its hello.
func squatSilently(t *testing.T, gid [16]byte) <-chan struct{} {
	t.Helper()
	arrived := make(chan struct{}, 1)
	squat(t, gid, func(*net.UnixConn, frame) { arrived <- struct{}{} })
	return arrived
}

func TestDial_CanceledOrPortClosed(t *testing.T) {
	gid := anyGID()
	t.Run("canceled", func(t *testing.T) {
		a, arrived := newStation(t, nil), squatSilently(t, gid)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-arrived; cancel() }()
		_, err := a.Dial(ctx, gid)
		assert.ErrorIs(t, err, context.Canceled)
	})
	t.Run("port closed", func(t *testing.T) {
		a, arrived := newStation(t, nil), squatSilently(t, gid)
		go func() { <-arrived; _ = a.Port.Close() }()
		_, err := a.Dial(context.Background(), gid)
		assert.ErrorIs(t, err, ucs.ErrClosed)
	})
}

// TestDial_CallersDeadline: a deadline that has passed before the dial, and one that
// passes while it waits for the answer, or, on a slow machine, before it has sent
// anything.
func TestDial_CallersDeadline(t *testing.T) {
	gid := anyGID()
	for _, limit := range []time.Duration{0, 20 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			a := newStation(t, nil)
			squatSilently(t, gid)
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			_, err := a.Dial(ctx, gid)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, ucs.ErrTimedOut)
		})
	}
}

// TestDial_FullBacklog: a kernel without room for the connection says so at once,
// and a dialer keeps trying until its time is over.
func TestDial_FullBacklog(t *testing.T) {
	gid := anyGID()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	name := socketAddr("", testService, uint32(os.Geteuid()), gid).Name
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
	require.NoError(t, unix.Listen(fd, 0))
	for { // until it is full
		conn, err := net.Dial("unixpacket", name)
		if err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			break
		}
		defer func() { _ = conn.Close() }()
	}
	a := newStation(t, func(c *Config) { c.HandshakeTimeout = 20 * time.Millisecond })
	_, err = a.Dial(context.Background(), gid)
	assert.ErrorIs(t, err, ucs.ErrTimedOut)
}

// TestNoDescriptors: what fails for want of descriptors on either side says so, and may go well
// when it is tried again.
func TestNoDescriptors(t *testing.T) {
	t.Run("some", func(t *testing.T) {
		for free := range frameFDs + 1 {
			s := newStation(t, nil)
			hello, fds := s.hello(t)
			c := s.connect(t)
			testenv.ProgressWithin(t, watchdog, func() bool { return len(s.slots) == 1 })
			before := testenv.OpenFiles(t)
			fds = append(fds, fds[0])[:min(free+1, frameFDs+1)] // one more than there is room for
			testenv.WithDescriptors(t, free, func() {
				require.NoError(t, send(c.UnixConn, hello, fds...))
				last := c.untilHangUp(t)
				if free == frameFDs {
					assert.Empty(t, last, "too many, whatever there is room for")
					return
				}
				reply, err := decodeFrame(last)
				require.NoError(t, err)
				assert.Equal(t, ReasonLimit, reply.reason)
			})
			untilOpenFiles(t, before-2) // both ends are closed, and what came
		}
	})
	t.Run("acceptor", func(t *testing.T) {
		s := newStation(t, nil)
		hello, fds := s.hello(t)
		c := s.connect(t)
		testenv.ProgressWithin(t, watchdog, func() bool { return len(s.slots) == 1 }) // accepted
		before := testenv.OpenFiles(t)
		testenv.WithoutDescriptors(t, func() {
			require.NoError(t, send(c.UnixConn, hello, fds...))
			reply, err := decodeFrame(c.untilHangUp(t))
			require.NoError(t, err)
			assert.Equal(t, frame{kind: kindRefuse, reason: ReasonLimit, from: s.gid}, reply)
		})
		untilOpenFiles(t, before-2) // both ends are closed
		assert.Equal(t, Stats{Refused: 1}, s.Stats())
		newStation(t, nil).dial(t, s.gid)
	})
	t.Run("dialer without a segment", func(t *testing.T) {
		a, gid := newStation(t, nil), anyGID()
		l, err := net.ListenUnix(network, socketAddr("", testService, uint32(os.Geteuid()), gid))
		require.NoError(t, err)
		defer l.Close()
		before := testenv.OpenFiles(t)
		for free := range 2 {
			testenv.WithDescriptors(t, free, func() {
				_, err := a.Dial(t.Context(), gid)
				assert.ErrorIs(t, err, ucs.ErrNoMemory)
			})
		}
		untilOpenFiles(t, before)
	})
	t.Run("dialer", func(t *testing.T) {
		a, lender, gid := newStation(t, nil), newStation(t, nil), anyGID()
		told, answer, ended := make(chan frame, 1), make(chan struct{}), make(chan struct{})
		squat(t, gid, func(conn *net.UnixConn, h frame) {
			told <- h
			<-answer
			welcome := &frame{kind: kindWelcome, layout: testLayout, from: gid, to: h.from, len0: testTableLen, arenaLen: testArenaLen}
			assert.NoError(t, send(conn, welcome, lender.table.FD(), lender.arena.FD(), lender.wake.PeerFD()))
			<-ended
		})
		var err error
		go func() {
			defer close(ended)
			_, err = a.Dial(context.Background(), gid)
		}()
		within(t, told, "hello")
		testenv.WithoutDescriptors(t, func() {
			close(answer)
			within(t, ended, "the end of the dial")
		})
		assert.ErrorIs(t, err, ucs.ErrNoMemory)
		assert.NotErrorIs(t, err, ErrProtocol)
	})
}

// TestReasonOf: a peer whose memory finds no room is told another reason than one whose memory is
// not acceptable.
func TestReasonOf(t *testing.T) {
	const beyond = 1 << 56 // any address space
	adopt := func(n int) error {
		fd, err := unix.MemfdCreate("long", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		require.NoError(t, unix.Ftruncate(fd, beyond))
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
		require.NoError(t, err)
		_, err = new(memfd.Mapper).Adopt(fd, memfd.ReadWrite, 1, n, beyond)
		require.Error(t, err)
		return err
	}
	assert.Equal(t, ReasonLimit, reasonOf(adopt(beyond)))
	assert.Equal(t, ReasonSegments, reasonOf(adopt(beyond-1)))
}
