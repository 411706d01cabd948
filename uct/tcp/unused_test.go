package tcp

import (
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// idleEnd opens an end with IdleTimeout.
func idleEnd(t testing.TB, token string, idle time.Duration, cfg Config) *end {
	t.Helper()
	e := openEnd(t, "lo", token, cfg)
	e.it.idleTimeout = idle
	return e
}

// closeEPs closes the EPs of e.
func (e *end) closeEPs() {
	for _, ep := range e.eps {
		require.NoError(e.t, ep.Close())
	}
	e.eps = nil
}

// expireUnused makes the time without EPs pass.
func (e *end) expireUnused() { e.it.checkUnusedConns(time.Now().Add(24 * time.Hour)) }

// TestUnused_ClosesAndReopens: a connection without EPs is closed, also if messages were not confirmed,
// and uses no descriptors and no timer. EPs that are made later connect again.
func TestUnused_ClosesAndReopens(t *testing.T) {
	for _, tc := range []struct {
		name, token string
		cfg         Config
	}{{"direct", "", Config{}}, {"TLS", "", trusting(testenv.NewAuthority(t))}, {"token", testToken, Config{}}} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := idleEnd(t, tc.token, time.Millisecond, tc.cfg), idleEnd(t, tc.token, time.Millisecond, tc.cfg)
			files := testenv.OpenFiles(t)
			for round := range 3 {
				ab, ba := a.to(b), b.to(a)
				for n := range uint64(3) {
					send(t, ab, n, 64, a, b)
					send(t, ba, n, 64, a, b)
				}
				until(t, func() bool { return len(a.got) == 3*(round+1) }, a, b)
				require.Positive(t, a.it.openCount)
				a.closeEPs()
				b.closeEPs()
				until(t, func() bool {
					return len(a.it.table)+len(b.it.table)+a.it.openCount+b.it.openCount == 0 && testenv.OpenFiles(t) <= files
				}, a, b)
				require.Len(t, b.got, 3*(round+1))
			}
			until(t, func() bool { return a.it.nextTick()+b.it.nextTick() == 0 }, a, b) // nothing wakes an idle process
			assert.Empty(t, append(a.errs, b.errs...))
			assert.Zero(t, a.it.limits.malformed.Load()+b.it.limits.malformed.Load())
		})
	}
}

// TestUnused_Time: a connection is closed when IdleTimeout has passed, which starts when the last EP is closed.
func TestUnused_Time(t *testing.T) {
	a, b := idleEnd(t, "", time.Hour, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	flush(t, ep, a, b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	c := ep.conn
	require.Empty(t, a.it.unused)
	before := time.Now()
	a.closeEPs()
	require.False(t, c.closeAt.Before(before.Add(time.Hour)))
	require.Equal(t, unusedTick(time.Hour), a.it.unusedTick)
	a.it.checkUnusedConns(c.closeAt.Add(-1))
	require.Equal(t, closeNone, c.closing)
	a.to(b)
	a.it.checkUnusedConns(c.closeAt)
	require.Equal(t, closeNone, c.closing, "an EP uses it")
	require.Empty(t, a.it.unused)
	a.closeEPs()
	a.it.checkUnusedConns(c.closeAt)
	require.Equal(t, closeProposed, c.closing)
	until(t, func() bool { return a.it.openCount+b.it.openCount == 0 }, a, b)
	assert.Equal(t, connGone, c.state)
}

// TestUnused_Never: without IdleTimeout, a side does not propose to close a connection, unless it has refused that
// before.
func TestUnused_Never(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	c := ep.conn
	a.closeEPs()
	require.Empty(t, a.it.unused)
	b.it.idleTimeout = time.Hour
	a.to(b)
	b.to(a)
	b.closeEPs()
	b.expireUnused()
	until(t, func() bool { return c.sentUsed && b.it.table[a.it.addr.key].closing == closeNone }, a, b)
	require.Empty(t, b.it.unused, "the other side has refused, and will propose")
	a.closeEPs()
	require.Len(t, a.it.unused, 1)
	a.expireUnused()
	until(t, func() bool { return a.it.openCount+b.it.openCount == 0 }, a, b)
}

// TestUnused_Excluded: connections with rails, to the own iface and of unproven peers remain open.
func TestUnused_Excluded(t *testing.T) {
	t.Run("rails", func(t *testing.T) {
		a, b := idleEnd(t, "", time.Hour, Config{ConnsPerPeer: 2}), idleEnd(t, "", time.Hour, Config{})
		ep := a.to(b)
		b.to(a)
		send(t, ep, 1, 64, a, b)
		flush(t, ep, a, b)
		a.closeEPs()
		b.closeEPs()
		assert.Empty(t, a.it.unused)
		assert.Empty(t, b.it.unused)
	})
	t.Run("own iface", func(t *testing.T) {
		a := idleEnd(t, "", time.Hour, Config{})
		ep := a.to(a)
		send(t, ep, 1, 64, a)
		flush(t, ep, a)
		a.closeEPs()
		assert.Empty(t, a.it.unused)
	})
	t.Run("unproven", func(t *testing.T) {
		a, b := newEnd(t, Config{}), idleEnd(t, "", time.Hour, Config{})
		ep := a.to(b)
		send(t, ep, 1, 64, a, b)
		flush(t, ep, a, b)
		c := b.it.table[a.it.addr.key]
		require.NotNil(t, c.unproven)
		c.startCloseTimer()
		assert.Empty(t, b.it.unused)
		a.it.idleTimeout = time.Hour
		a.closeEPs() // the side whose EPs are proven proposes
		a.expireUnused()
		until(t, func() bool { return a.it.openCount+b.it.openCount == 0 }, a, b)
		assert.Empty(t, b.it.unproven.all)
	})
}

// admittedWith connects p with e, with these features in the HELLO.
func (p rawPeer) admittedWith(t testing.TB, e *end, features uint32) net.Conn {
	t.Helper()
	c, h := client(t, e), p.good(e)
	h.features = features
	p.say(t, c, e, h)
	answer, err := readAnswer(t, c, e)
	require.NoError(t, err)
	require.Equal(t, codeOK, answer.code)
	require.EqualValues(t, featureUnused, answer.features)
	return c
}

// readFrame reads a frame without data. It calls Progress of e until the frame arrives.
func readFrame(t testing.TB, conn net.Conn, e *end) uint8 {
	t.Helper()
	var b [frameLen]byte
	readAll(t, conn, e, b[:])
	h, ok := parseHeader(b[:], 0)
	require.True(t, ok)
	return h.kind
}

// readAll fills b. It calls Progress of e until the bytes arrive.
func readAll(t testing.TB, conn net.Conn, e *end, b []byte) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	for got := 0; got < len(b); {
		until(t, func() bool {
			n, err := 0, error(nil)
			require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), b[got:]) }))
			if err == unix.EAGAIN {
				return false
			}
			require.NoError(t, err)
			require.NotZero(t, n, "closed")
			got += n
			return true
		}, e)
	}
}

// isClosed reports whether e has closed the connection, without more bytes.
func isClosed(t testing.TB, conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	n := 0
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), make([]byte, 1)) }))
	require.LessOrEqual(t, n, 0)
	return err != unix.EAGAIN
}

func writeFrames(t testing.TB, conn net.Conn, frames ...[]byte) {
	t.Helper()
	for _, b := range frames {
		_, err := conn.Write(b)
		require.NoError(t, err)
	}
}

// TestUnused_OldPeer: a peer of a release without UNUSED receives none. If it sends one, its connection fails.
func TestUnused_OldPeer(t *testing.T) {
	e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
	conn := p.admittedWith(t, e, 0)
	ep := e.name(&p.Public)
	e.closeEPs()
	assert.Empty(t, e.it.unused)
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	until(t, func() bool { return ep.conn.state == connGone }, e)
	assert.ErrorIs(t, ep.conn.err, errMalformed)
}

// TestUnused_InvalidFrames: a peer that sends UNUSED or USED at the wrong time loses its connection, and no other.
func TestUnused_InvalidFrames(t *testing.T) {
	unused, used := rawFrame(frameUnused, 0, 0), rawFrame(frameUsed, 0, 0)
	for _, tc := range []struct {
		name   string
		frames [][]byte
		eps    int
	}{
		{"USED without UNUSED", [][]byte{used}, 1},
		{"USED of another side", [][]byte{unused, used}, 1},
		{"UNUSED with a body", [][]byte{rawFrame(frameUnused, 0, 1, 7)}, 1},
		{"USED with an id", [][]byte{rawFrame(frameUsed, 1, 0)}, 1},
		{"UNUSED after BYE", [][]byte{append(rawFrame(frameBye, 0, 0), unused...)}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, e, p := newEnd(t, Config{}), newEnd(t, Config{}), newRawPeer(t)
			ep := a.to(e)
			send(t, ep, 1, 64, a, e)
			conn := p.admittedWith(t, e, featureUnused)
			e.name(&p.Public)
			writeFrames(t, conn, tc.frames...)
			until(t, func() bool { return e.it.limits.malformed.Load() == 1 }, e)
			until(t, func() bool { return len(e.errs) == 1 }, e)
			send(t, ep, 2, 64, a, e)
			flush(t, ep, a, e)
			assert.Empty(t, a.errs)
		})
	}
}

// TestUnused_Flood: a peer that sends UNUSED again and again, and reads no reply, uses no more than the room for
// replies.
func TestUnused_Flood(t *testing.T) {
	e, p := newEnd(t, Config{RcvBuf: 1, SndBuf: 1}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1))
	e.name(&p.Public)
	c := e.it.table[p.Public]
	flood := make([]byte, 0, 8<<10)
	for len(flood) < cap(flood) {
		flood = append(flood, rawFrame(frameUnused, 0, 0)...)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	at := 0
	until(t, func() bool {
		require.NoError(t, raw.Control(func(fd uintptr) {
			if n, err := unix.Write(int(fd), flood[at:]); err == nil {
				at = (at + n) % len(flood)
			}
		}))
		return c.state == connGone
	}, e)
	assert.ErrorIs(t, c.err, errFlooded)
}

// TestUnused_WhileUndecided: EPs that are made while the peer has not replied post nothing, whatever is called. After
// USED they use the connection, after UNUSED another one.
func TestUnused_WhileUndecided(t *testing.T) {
	for _, reply := range []uint8{frameUsed, frameUnused} {
		e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
		conn := p.admittedWith(t, e, featureUnused)
		e.name(&p.Public)
		e.closeEPs()
		e.expireUnused()
		require.EqualValues(t, frameUnused, readFrame(t, conn, e))

		ep := e.name(&p.Public)
		old := ep.conn
		require.Equal(t, uct.ErrNoResource, ep.AMShort(msgID, 0, nil))
		require.NoError(t, ep.Fence())
		require.NoError(t, e.it.Fence())
		require.Equal(t, uct.ErrNoResource, ep.AMShort(msgID, 0, nil), "a fence does not permit posts")
		_, err := ep.AMZcopy(msgID, nil, []uct.IOV{{Buf: make([]byte, 8<<10)}}, nil)
		require.Equal(t, uct.ErrNoResource, err)
		_, err = ep.Check(nil)
		require.Equal(t, uct.ErrNoResource, err)
		pending, err := ep.Flush(nil)
		require.True(t, !pending && err == nil, "there is nothing to flush")
		pending, err = e.it.Flush(nil)
		require.True(t, !pending && err == nil)
		posted := false
		r := &uct.PendingReq{Func: func(*uct.PendingReq) error { posted = true; return ep.AMShort(msgID, 0, []byte{1}) }}
		require.NoError(t, ep.AddPending(r))
		e.it.Progress()
		require.True(t, ep.pending.Blocks())

		// The peer may send before it replies.
		writeFrames(t, conn, rawFrame(frameAM, msgID, 8, make([]byte, 8)...), rawFrame(frameFlush, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0))
		until(t, func() bool { return len(e.got) == 1 }, e)
		if reply == frameUsed {
			var done [frameLen + wordLen]byte
			readAll(t, conn, e, done[:])
			writeFrames(t, conn, rawFrame(frameUsed, 0, 0))
			require.EqualValues(t, frameAM, readMessage(t, conn, e))
			assert.Same(t, old, ep.conn)
			require.NoError(t, ep.Fence())
			require.NoError(t, ep.AMShort(msgID, 0, nil), "a fence waits for nothing")
		} else {
			writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
			until(t, func() bool { return ep.conn != old }, e)
			assert.Equal(t, connGone, old.state)
			assert.NotEqual(t, connOpen, ep.conn.state)
			assert.Same(t, ep.conn, e.it.table[p.Public])
		}
		assert.True(t, posted)
		assert.Empty(t, e.errs)
		ep.PurgePending(func(*uct.PendingReq) {})
	}
}

// TestUnused_ConfirmsRequests: a side proposes to close a connection, and agrees to that, only when the peer has
// confirmed its requests.
func TestUnused_ConfirmsRequests(t *testing.T) {
	e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	require.NoError(t, e.name(&p.Public).AMShort(msgID, 0, nil))
	e.closeEPs()
	require.EqualValues(t, frameAM, readMessage(t, conn, e))
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	require.EqualValues(t, frameUsed, readFrame(t, conn, e))
	e.expireUnused()
	require.EqualValues(t, frameFlush, readMessage(t, conn, e))
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	require.EqualValues(t, frameUsed, readFrame(t, conn, e))
	c := e.it.table[p.Public]
	e.it.checkUnusedConns(c.closeAt)
	require.Equal(t, closeNone, c.closing)
	writeFrames(t, conn, rawFrame(frameDone, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0))
	until(t, func() bool { return c.acked == c.sent }, e)
	e.it.checkUnusedConns(c.closeAt)
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	until(t, func() bool { return isClosed(t, conn) }, e)
}

// TestUnused_AwaitsReplies: a side proposes to close a connection when it has received all replies.
func TestUnused_AwaitsReplies(t *testing.T) {
	e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	_, err := e.name(&p.Public).Check(nil)
	require.NoError(t, err)
	e.closeEPs()
	e.expireUnused()
	require.EqualValues(t, frameFlush, readMessage(t, conn, e))
	c := e.it.table[p.Public]
	e.it.checkUnusedConns(c.closeAt)
	require.Equal(t, closeNone, c.closing)
	writeFrames(t, conn, rawFrame(frameDone, 0, 8, make([]byte, 8)...))
	until(t, func() bool { return c.awaitingReply.n == 0 }, e)
	e.it.checkUnusedConns(c.closeAt)
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
}

// TestUnused_SilentPeer: a peer that does not reply, or does not read, does not make the timer run. The connection is
// closed when it does.
func TestUnused_SilentPeer(t *testing.T) {
	for _, reads := range []bool{true, false} {
		io := &fullSocket{}
		e, p := idleEnd(t, "", time.Hour, Config{sys: io}), newRawPeer(t)
		conn := p.admittedWith(t, e, featureUnused)
		ep := e.name(&p.Public)
		require.NoError(t, ep.AMShort(msgID, 0, nil))
		require.EqualValues(t, frameAM, readMessage(t, conn, e))
		c := ep.conn
		if io.full = !reads; !reads {
			require.NoError(t, ep.AMShort(msgID, 0, nil))
		}
		e.closeEPs()
		require.Len(t, e.it.unused, 1)
		require.Equal(t, unusedTick(time.Hour), e.it.unusedTick)
		e.expireUnused()
		require.Empty(t, e.it.unused)
		require.Zero(t, e.it.unusedTick)
		if !reads {
			io.full = false
			require.EqualValues(t, frameAM, readMessage(t, conn, e))
			until(t, func() bool { return len(e.it.unused) == 1 }, e)
			e.expireUnused()
			require.Empty(t, e.it.unused)
		}
		require.EqualValues(t, frameFlush, readMessage(t, conn, e))
		writeFrames(t, conn, rawFrame(frameDone, 0, 8, byte(c.sent), 0, 0, 0, 0, 0, 0, 0))
		until(t, func() bool { return len(e.it.unused) == 1 }, e)
		e.expireUnused()
		require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	}
}

// TestUnused_Tick: the interval of the checks does not remain short after the connection that needed it is closed.
func TestUnused_Tick(t *testing.T) {
	e, p, q := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t), newRawPeer(t)
	p.admittedWith(t, e, featureUnused)
	q.admittedWith(t, e, featureUnused)
	e.name(&p.Public)
	e.name(&q.Public)
	first := e.eps[0]
	e.it.idleTimeout = time.Second
	require.NoError(t, first.Close())
	require.Equal(t, unusedTick(time.Second), e.it.unusedTick)
	at := first.conn.closeAt
	e.it.idleTimeout = time.Hour
	e.closeEPs()
	e.it.checkUnusedConns(at)
	require.Len(t, e.it.unused, 1)
	require.Equal(t, unusedTick(time.Hour), e.it.unusedTick)
}

// TestUnused_OpensWithoutEP: a connection whose EPs were closed while it was dialed is closed too.
func TestUnused_OpensWithoutEP(t *testing.T) {
	a, b := idleEnd(t, "", time.Hour, Config{}), newEnd(t, Config{})
	require.NoError(t, a.to(b).AMShort(msgID, 1, nil))
	a.closeEPs()
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	require.Len(t, a.it.unused, 1)
}

// TestUnused_ProposesAfterRefusal: a side without EPs that has refused to close a connection proposes it later.
func TestUnused_ProposesAfterRefusal(t *testing.T) {
	io := &fullSocket{}
	e, p := idleEnd(t, "", time.Hour, Config{sys: io}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	e.name(&p.Public)
	e.closeEPs()
	e.expireUnused()
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	writeFrames(t, conn, rawFrame(frameUsed, 0, 0))
	c := e.it.table[p.Public]
	until(t, func() bool { return c.closing == closeNone }, e)
	require.Empty(t, e.it.unused)
	io.full = true
	writeFrames(t, conn, rawFrame(frameFlush, 0, 8, make([]byte, 8)...), rawFrame(frameUnused, 0, 0))
	until(t, func() bool { return c.sentUsed }, e)
	require.Len(t, e.it.unused, 1)
	io.full = false
	require.EqualValues(t, frameDone, readMessage(t, conn, e))
	require.EqualValues(t, frameUsed, readFrame(t, conn, e))
	e.expireUnused()
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
}

// TestUnused_NextConnection: EPs that were made before the peer has agreed connect as they would have done without the
// old connection.
func TestUnused_NextConnection(t *testing.T) {
	for mode, want := range map[uct.DialMode]connState{
		uct.DialOnUse: connIdle, uct.DialNow: connDialing, uct.DialByPeer: connIdle, uct.DialedByPeer: connIdle,
	} {
		a, b := idleEnd(t, "", time.Hour, Config{}), newEnd(t, Config{})
		to := uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.it.IfaceAddr(nil), Dial: uct.DialNow}
		first, err := a.it.NewEP(to)
		require.NoError(t, err)
		until(t, func() bool { return a.it.openCount+b.it.openCount == 2 }, a, b)
		require.NoError(t, first.Close())
		a.expireUnused()
		to.Dial, to.Within = mode, time.Minute
		ep, err := a.it.NewEP(to)
		require.NoError(t, err, "the peer may not agree")
		defer ep.Close()
		until(t, func() bool { return b.it.openCount == 0 }, b)
		old := ep.(*endpoint).conn
		until(t, func() bool { return ep.(*endpoint).conn != old }, a)
		c := ep.(*endpoint).conn
		assert.Equal(t, want, c.state, "%d", mode)
		assert.Equal(t, mode.Trusted() || old.path.isKnown(), c.path.isKnown())
		assert.Equal(t, mode != uct.DialOnUse || old.postWhenOpen, c.postWhenOpen)
		assert.Equal(t, time.Minute, c.within)
		assert.Equal(t, old.addr, c.addr)
	}
}

// readMessage reads an active message and returns the type of its frame.
func readMessage(t testing.TB, conn net.Conn, e *end) uint8 {
	t.Helper()
	var b [frameLen]byte
	readAll(t, conn, e, b[:])
	h, ok := parseHeader(b[:], e.it.maxAM)
	require.True(t, ok)
	readAll(t, conn, e, make([]byte, h.n))
	return h.kind
}

// TestUnused_HoldsHello: a HELLO that arrives before the reply to UNUSED is answered after it. A later HELLO of the same
// peer replaces it, and one whose sender has closed the socket is dropped.
func TestUnused_HoldsHello(t *testing.T) {
	e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	e.name(&p.Public)
	e.closeEPs()
	e.expireUnused()
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	old := e.it.table[p.Public]

	hold := func() net.Conn {
		was := old.deferredHello
		c, h := client(t, e), p.good(e)
		h.conn, h.features = 6, featureUnused
		p.say(t, c, e, h)
		until(t, func() bool { return old.deferredHello != was }, e)
		return c
	}
	first := hold()
	second := hold()
	until(t, func() bool { return isClosed(t, first) }, e)
	assert.ErrorIs(t, e.it.refused.last, errLaterHello)
	require.NoError(t, second.Close())
	until(t, func() bool { return old.deferredHello.fd < 0 }, e)
	third := hold()
	writeFrames(t, hold(), []byte{1}) // more than a HELLO
	until(t, func() bool { return old.deferredHello.fd < 0 && isClosed(t, third) }, e)
	assert.ErrorIs(t, e.it.refused.last, errGarbage)
	gone := hold()
	require.NoError(t, gone.Close())
	readable(t, old.deferredHello.fd)
	refused := e.it.limits.refused.Load()
	old.answerDeferredHello()
	assert.Equal(t, refused+1, e.it.limits.refused.Load(), "without a reply")
	assert.ErrorIs(t, e.it.refused.last, errGarbage, "closed sockets are not logged")
	assert.Nil(t, old.deferredHello)
	assert.Equal(t, connOpen, old.state)
	fourth := hold()
	assert.Len(t, e.it.unproven.all, 1)

	ep := e.name(&p.Public)
	writeFrames(t, conn, rawFrame(frameAM, msgID, 8, make([]byte, 8)...), rawFrame(frameUnused, 0, 0))
	answer, err := readAnswer(t, fourth, e)
	require.NoError(t, err)
	assert.Equal(t, codeOK, answer.code)
	assert.Len(t, e.got, 1)
	until(t, func() bool { return isClosed(t, conn) }, e)
	send(t, ep, 1, 64, e)
	require.EqualValues(t, frameAM, readMessage(t, fourth, e))
	assert.Empty(t, e.errs)
}

// TestUnused_DeferredHelloOfLostConnection: a HELLO is answered also if the connection breaks or remains open.
func TestUnused_DeferredHelloOfLostConnection(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(net.Conn) error
		want answerCode
	}{
		{"closed", net.Conn.Close, codeOK},
		{"USED", func(c net.Conn) error { _, err := c.Write(rawFrame(frameUsed, 0, 0)); return err }, codeOpen},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
			conn := p.admittedWith(t, e, featureUnused)
			e.name(&p.Public)
			e.closeEPs()
			e.expireUnused()
			require.EqualValues(t, frameUnused, readFrame(t, conn, e))
			next, h := client(t, e), p.good(e)
			h.conn = 6
			p.say(t, next, e, h)
			until(t, func() bool { return e.it.table[p.Public].deferredHello != nil }, e)
			require.NoError(t, tc.end(conn))
			answer, err := readAnswer(t, next, e)
			require.NoError(t, err)
			assert.Equal(t, tc.want, answer.code)
		})
	}
}

// TestUnused_BreaksWhileUndecided: EPs that were made while the peer has not replied use another connection if the old one
// breaks. They fail if the peer has closed gracefully, or has sent an invalid frame.
func TestUnused_BreaksWhileUndecided(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*testing.T, net.Conn)
		want error // of the EPs
	}{
		{"end of stream", func(t *testing.T, c net.Conn) {}, nil},
		{"reset", func(t *testing.T, c net.Conn) { require.NoError(t, c.(*net.TCPConn).SetLinger(0)) }, nil},
		{"BYE", func(t *testing.T, c net.Conn) { writeFrames(t, c, rawFrame(frameBye, 0, 0)) }, uct.ErrPeerClosed},
		{"invalid frame", func(t *testing.T, c net.Conn) { writeFrames(t, c, rawFrame(frameUsed, 1, 0)) }, errMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
			conn := p.admittedWith(t, e, featureUnused)
			e.name(&p.Public)
			e.closeEPs()
			e.expireUnused()
			require.EqualValues(t, frameUnused, readFrame(t, conn, e))
			ep := e.name(&p.Public)
			old := ep.conn
			tc.end(t, conn)
			require.NoError(t, conn.Close())
			until(t, func() bool { return old.state == connGone }, e)
			assert.Zero(t, e.it.openCount)
			if tc.want != nil {
				require.Len(t, e.errs, 1)
				assert.ErrorIs(t, e.errs[0], tc.want)
				return
			}
			assert.Empty(t, e.errs)
			assert.NotSame(t, old, ep.conn)
			assert.Equal(t, connIdle, ep.conn.state)
			p.admittedWith(t, e, featureUnused)
			assert.NoError(t, ep.AMShort(msgID, 0, nil))
		})
	}
}

// TestUnused_UnreachableNext: an EP that may need the next connection is not made if this side cannot dial it.
func TestUnused_UnreachableNext(t *testing.T) {
	e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	addr := ifaceAddr{key: p.Public, port4: 1, seg: 2 * e.it.addr.seg}
	to := uct.EPParams{DeviceAddr: e.it.DeviceAddr(nil), IfaceAddr: addr.append(nil)}
	ep, err := e.it.NewEP(to)
	require.NoError(t, err)
	require.NoError(t, ep.Close())
	e.expireUnused()
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	_, err = e.it.NewEP(to)
	require.ErrorIs(t, err, uct.ErrUnreachable)
	to.Dial = uct.DialByPeer
	ep, err = e.it.NewEP(to)
	require.NoError(t, err, "the peer dials")
	require.NoError(t, ep.Close())
}

// TestUnused_InlineGets: a side that has proposed to close a connection replies to small gets as before.
func TestUnused_InlineGets(t *testing.T) {
	a, b := newEnd(t, Config{}), idleEnd(t, "", time.Hour, Config{})
	ep := a.to(b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	b.to(a)
	b.closeEPs()
	c := b.it.table[a.it.addr.key]
	c.tx = txQueue{} // this side has only received
	b.expireUnused()
	require.Len(t, c.tx.buf, replyRoom)
	until(t, func() bool { return ep.conn.sentUsed && c.closing == closeNone }, a, b)
	done := false
	comp := uct.Completion{Count: 1, Func: func(*uct.Completion) { done = true }}
	got := make([]byte, 64)
	_, err := ep.GetZcopy([]uct.IOV{{Buf: got}}, b.mem.addr, a.keyOf(b), &comp)
	require.NoError(t, err)
	until(t, func() bool { return done }, a, b)
	require.Equal(t, b.mem.buf[:64], got)
	assert.Greater(t, len(c.tx.buf), replyRoom)
	assert.Zero(t, c.tx.after, "the data was written from its memory")
}

// TestUnused_DeferredHelloHasLimit: the reply to a HELLO is not deferred for longer than HELLO_TIMEOUT.
func TestUnused_DeferredHelloHasLimit(t *testing.T) {
	e, p := idleEnd(t, "", time.Hour, Config{}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	e.name(&p.Public)
	e.closeEPs()
	e.expireUnused()
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	next, h := client(t, e), p.good(e)
	p.say(t, next, e, h)
	c := e.it.table[p.Public]
	until(t, func() bool { return c.deferredHello != nil }, e)
	deadline := c.deferredHello.unproven.deadline
	e.it.expireUnproven(deadline)
	require.GreaterOrEqual(t, c.deferredHello.fd, 0)
	e.it.expireUnproven(deadline.Add(1))
	until(t, func() bool { return isClosed(t, next) }, e)
	assert.ErrorIs(t, e.it.refused.last, errUndecided)
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	until(t, func() bool { return isClosed(t, conn) }, e)
	assert.Empty(t, e.it.table)
}

// fullSocket refuses writes while full is set.
type fullSocket struct {
	sockio.Kernel
	full bool
}

func (s *fullSocket) Send(fd int, b []byte) (int, syscall.Errno) {
	if s.full {
		return 0, unix.EAGAIN
	}
	return s.Kernel.Send(fd, b)
}

// TestUnused_FullSocket: the socket is closed only when UNUSED was written.
func TestUnused_FullSocket(t *testing.T) {
	io := &fullSocket{}
	e, p := idleEnd(t, "", time.Hour, Config{sys: io}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	c := e.it.table[p.Public]
	io.full = true
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	until(t, func() bool { return c.closing == closeAgreed }, e)
	ep := e.name(&p.Public)
	require.Equal(t, uct.ErrNoResource, ep.AMShort(msgID, 0, nil))
	for range 3 {
		e.expireUnused()
		e.it.Progress()
		require.Equal(t, connOpen, c.state)
	}
	io.full = false
	require.EqualValues(t, frameUnused, readFrame(t, conn, e))
	until(t, func() bool { return c.state == connGone && isClosed(t, conn) }, e)
	assert.Equal(t, connIdle, ep.conn.state)
	assert.Empty(t, e.errs)
}

// TestUnused_PeerClosesFirst: a peer that has sent UNUSED and closes its socket before this side has written its UNUSED
// fails no EP.
func TestUnused_PeerClosesFirst(t *testing.T) {
	io := &fullSocket{}
	e, p := idleEnd(t, "", time.Hour, Config{sys: io}), newRawPeer(t)
	conn := p.admittedWith(t, e, featureUnused)
	c := e.it.table[p.Public]
	io.full = true
	writeFrames(t, conn, rawFrame(frameUnused, 0, 0))
	until(t, func() bool { return c.closing == closeAgreed }, e)
	ep := e.name(&p.Public)
	require.NoError(t, conn.Close())
	until(t, func() bool { return c.state == connGone }, e)
	assert.Equal(t, connIdle, ep.conn.state)
	assert.Empty(t, e.errs)
}

// TestUnused_CloseIface: an iface that waits for a reply to UNUSED, or whose UNUSED is not written, closes.
func TestUnused_CloseIface(t *testing.T) {
	for _, peerReads := range []bool{false, true} {
		a, b := idleEnd(t, "", time.Hour, Config{Linger: time.Millisecond}), newEnd(t, Config{})
		ep, back := a.to(b), b.to(a)
		send(t, ep, 1, 64, a, b)
		flush(t, ep, a, b)
		a.closeEPs()
		a.expireUnused()
		require.NotEmpty(t, a.it.table)
		if peerReads {
			until(t, func() bool { return back.conn.sentUsed }, b)
		}
		a.close()
		until(t, func() bool { return len(b.errs) == 1 }, b)
		assert.ErrorIs(t, b.errs[0], uct.ErrPeerClosed)
	}
}

// TestUnused_Interrupted: writes and reads in pieces do not change the result.
func TestUnused_Interrupted(t *testing.T) {
	for seed := range uint64(testenv.Rounds(10, 200)) {
		ends := [2]*end{}
		for i := range ends {
			f := newFaults(2*seed + uint64(i))
			f.chunk, f.refuse = 5, 3
			ends[i] = idleEnd(t, "", time.Millisecond, Config{sys: f})
		}
		a, b := ends[0], ends[1]
		rng := rand.New(rand.NewPCG(seed, 2))
		for round := range 5 {
			n := 0
			for _, e := range ends {
				if rng.IntN(3) > 0 || e == a {
					peer := b
					if e == b {
						peer = a
					}
					send(t, e.to(peer), uint64(round), 300, a, b)
					n++
				}
			}
			until(t, func() bool { return len(a.got)+len(b.got) == n }, a, b)
			a.got, b.got = nil, nil
			a.closeEPs()
			b.closeEPs()
			if rng.IntN(2) == 0 {
				until(t, func() bool { return a.it.openCount+b.it.openCount == 0 }, a, b)
			}
		}
		assert.Empty(t, append(a.errs, b.errs...), "seed %d", seed)
		a.close()
		b.close()
	}
}
