package tcp

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestConnect_SimultaneousMakesOneConnection: two sides that connect to each other get one
// connection for any order of steps, and all messages arrive.
func TestConnect_SimultaneousMakesOneConnection(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := newEnd(t, Config{}), newEnd(t, Config{})
		defer a.close()
		defer b.close()
		ab, ba := a.to(b), b.to(a)
		posts := map[*end]*endpoint{a: ab, b: ba}
		sent := map[*end]int{}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			e := rapid.SampledFrom([]*end{a, b}).Draw(r, "who")
			if rapid.Bool().Draw(r, "post") {
				require.NoError(t, posts[e].AMShort(msgID, uint64(sent[e]), nil))
				sent[e]++
			} else {
				e.it.Progress()
			}
		}
		until(t, func() bool { return len(a.got) == sent[b] && len(b.got) == sent[a] }, a, b)
		for _, e := range []*end{a, b} {
			for i, m := range e.got {
				require.EqualValues(t, i, binary.LittleEndian.Uint64(m))
			}
			require.Empty(t, e.errs)
		}
		until(t, func() bool { return len(a.it.opening)+len(b.it.opening) == 0 }, a, b)
		if sent[a]+sent[b] > 0 {
			require.Equal(t, connOpen, ab.conn.state)
			require.Equal(t, connOpen, ba.conn.state)
			require.Equal(t, ab.conn.id, ba.conn.id)
			require.Equal(t, 1, a.it.openCount)
			require.Equal(t, 1, b.it.openCount)
		}
	})
}

// TestConnect_ToItself: an iface can be its own peer.
func TestConnect_ToItself(t *testing.T) {
	a := newEnd(t, Config{})
	ep, key := a.to(a), a.keyOf(a)
	send(t, ep, 7, 100, a)
	require.NoError(t, ep.PutShort([]byte("hello"), a.mem.addr, key))
	flush(t, ep, a)
	assert.Equal(t, "hello", string(a.mem.buf[:5]))
	assert.Len(t, a.got, 1)
}

// TestNewEP_SendsNothing: an EP without operations does not connect.
func TestNewEP_SendsNothing(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	for range 1000 {
		a.it.Progress()
		b.it.Progress()
	}
	assert.Equal(t, connIdle, ep.conn.state)
	assert.Nil(t, ep.conn.tx.buf)
	assert.Zero(t, b.it.openCount)
	require.NoError(t, ep.Close())
	assert.Empty(t, a.it.table)
}

// client returns a TCP connection to an iface.
func client(t testing.TB, e *end) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", netip.AddrPortFrom(e.it.dev.v4, e.it.addr.port4).String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// readAnswer reads the answer to a HELLO. It calls Progress of e until the answer arrives.
func readAnswer(t testing.TB, conn net.Conn, e *end) (h hello, err error) {
	t.Helper()
	done := make(chan struct{})
	var b [helloLen]byte
	go func() {
		defer close(done)
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, err = io.ReadFull(conn, b[:])
	}()
	until(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, e)
	if err != nil {
		return h, err
	}
	h, ok := parseHello(&b, msgAnswer)
	require.True(t, ok)
	return h, nil
}

// rawPeer is a peer that is not an Iface. It can send any bytes, with the proof of its own key.
type rawPeer struct {
	keypair.Pair
	token string
}

func newRawPeer(t testing.TB) rawPeer {
	t.Helper()
	id, err := keypair.New()
	require.NoError(t, err)
	return rawPeer{Pair: id}
}

// good returns a HELLO of s that e accepts.
func (s rawPeer) good(e *end) hello {
	return hello{version: helloVersion, msg: msgHello, from: s.Public, to: e.it.addr.key.ID(), conn: 5, seg: e.it.addr.seg, replies: maxReplies}
}

// proven encodes a message to the owner of the key to, with the proof of s.
func (s rawPeer) proven(t testing.TB, to *keypair.PublicKey, h hello) []byte {
	t.Helper()
	k, err := pairWith(&s.Pair, to, s.token)
	require.NoError(t, err)
	var b [helloLen]byte
	h.put(&b)
	k.sign(&b, nil)
	return b[:]
}

// say sends h to e with the proof of s.
func (s rawPeer) say(t testing.TB, conn net.Conn, e *end, h hello) {
	t.Helper()
	_, err := conn.Write(s.proven(t, &e.it.addr.key, h))
	require.NoError(t, err)
}

func TestHello_Answers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*hello)
		want   answerCode
		silent bool

		refusal error // the logged reason
	}{
		{"good", func(*hello) {}, codeOK, false, nil},
		{"version", func(h *hello) { h.version = 9 }, codeVersion, false, errVersion},
		{"segment", func(h *hello) { h.seg++ }, codeRefused, false, errLimits},
		{"replies", func(h *hello) { h.replies = 1 }, codeRefused, false, errLimits},
		{"another iface", func(h *hello) { h.to++ }, 0, true, errWrongIface},
		{"no sender", func(h *hello) { h.from = keypair.PublicKey{} }, 0, true, errGarbage},
		{"key of low order", func(h *hello) { h.from = keypair.PublicKey{1} }, 0, true, errUnproven},
		{"key of another", func(h *hello) { h.from[31] ^= 1 }, 0, true, errUnproven},
		{"an answer", func(h *hello) { h.msg = msgAnswer }, 0, true, errGarbage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnd(t, Config{})
			p := newRawPeer(t)
			conn, h := client(t, e), p.good(e)
			tc.change(&h)
			p.say(t, conn, e, h)
			got, err := readAnswer(t, conn, e)
			if tc.refusal != nil {
				assert.ErrorIs(t, e.it.refused.last, tc.refusal)
				assert.EqualValues(t, 1, e.it.limits.refused.Load())
			}
			if tc.silent {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got.code)
			assert.Equal(t, e.it.addr.key, got.from)
			assert.EqualValues(t, helloVersion, got.version)
			if tc.want != codeVersion {
				assert.Equal(t, p.Public.ID(), got.to)
			}
		})
	}
}

// TestHello_ReplacesLostConnection: a peer that has lost a connection that is open here gets its
// id, and can replace it.
func TestHello_ReplacesLostConnection(t *testing.T) {
	e, p := newEnd(t, Config{}), newRawPeer(t)
	first := client(t, e)
	p.say(t, first, e, p.good(e))
	got, err := readAnswer(t, first, e)
	require.NoError(t, err)
	require.Equal(t, codeOK, got.code)

	second := client(t, e)
	h := p.good(e)
	h.conn = 6
	p.say(t, second, e, h)
	got, err = readAnswer(t, second, e)
	require.NoError(t, err)
	assert.Equal(t, codeOpen, got.code)
	assert.EqualValues(t, 5, got.other, "the connection that is open")

	third := client(t, e)
	h.other = got.other
	p.say(t, third, e, h)
	got, err = readAnswer(t, third, e)
	require.NoError(t, err)
	assert.Equal(t, codeOK, got.code)
	assert.EqualValues(t, 6, e.it.table[p.Public].id)
	_, err = first.Read(make([]byte, 1))
	assert.Error(t, err, "the old connection is closed")
}

// TestDial_ReplacesConnectionOfPeer: an iface that has lost a connection dials, gets the id from
// the peer and replaces the connection.
func TestDial_ReplacesConnectionOfPeer(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	send(t, ep, 1, 8, a, b)
	flush(t, ep, a, b)
	stale := b.it.table[a.it.addr.key]
	// a loses the connection, but its descriptor remains open.
	kept := ep.conn
	a.it.removeConn(kept)
	next := a.to(b)
	send(t, next, 2, 8, a, b)
	flush(t, next, a, b)
	assert.Len(t, b.got, 2)
	assert.Equal(t, connGone, stale.state)
	assert.Equal(t, 2, next.conn.tries)
	until(t, func() bool { return len(a.errs) == 1 }, a, b) // the old one: b has closed it
	assert.ErrorIs(t, a.errs[0], ucs.ErrConnReset)
}

func TestConnect_Refused(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	for _, l := range b.it.listeners {
		require.NoError(t, b.it.poll.Remove(l.slot))
	}
	c := newCounter(1)
	_, err := ep.AMZcopy(msgID, nil, []uct.IOV{{Buf: make([]byte, 8<<10)}}, &c.Completion)
	require.NoError(t, err)
	until(t, func() bool { return len(a.errs) == 1 }, a, b)
	assert.ErrorIs(t, a.errs[0], uct.ErrUnreachable)
	assert.ErrorContains(t, a.errs[0], "refused")
	assert.Equal(t, 1, c.fired)
	assert.Equal(t, ucs.StatusUnreachable, c.Status)
	assert.Empty(t, a.it.table)
}

// TestConnect_TimesOut: connecting to a peer that accepts and sends nothing fails after
// CONN_TIMEOUT.
func TestConnect_TimesOut(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: 60 * time.Millisecond}), newEnd(t, Config{})
	ep := a.to(b)
	require.NoError(t, ep.AMShort(msgID, 0, nil))
	until(t, func() bool { return len(a.errs) == 1 }, a)
	assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
	assert.ErrorIs(t, ep.AMShort(msgID, 0, nil), uct.ErrEPFailed)
}

// readable waits until fd has bytes to read, and does not read them.
func readable(t *testing.T, fd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds()))
		if err != unix.EINTR {
			require.NoError(t, err)
			require.Equal(t, 1, n)
			return
		}
	}
}

// TestHandshake_ReadsBeforeDeadlineCheck: if the process is not scheduled until after a deadline,
// it reads what has arrived before it checks the deadline, on both sides of a handshake.
func TestHandshake_ReadsBeforeDeadlineCheck(t *testing.T) {
	t.Run("accepting", func(t *testing.T) {
		e, p := newEnd(t, Config{}), newRawPeer(t)
		conn := client(t, e)
		until(t, func() bool { return len(e.it.unproven.all) == 1 }, e)
		entry := e.it.unproven.all[0]
		readable(t, e.it.poll.FD()) // the timer has expired before the HELLO arrives
		p.say(t, conn, e, p.good(e))
		readable(t, entry.in.fd)
		entry.deadline = time.Now().Add(-time.Second)
		e.it.Progress()
		answer, err := readAnswer(t, conn, e)
		require.NoError(t, err)
		assert.Equal(t, codeOK, answer.code)
		assert.Zero(t, e.it.limits.refused.Load())
	})
	t.Run("connecting", func(t *testing.T) {
		a, b := newEnd(t, Config{}), newEnd(t, Config{})
		ep := a.to(b)
		require.NoError(t, ep.AMShort(msgID, 0, nil))
		until(t, func() bool { return ep.conn.attempt.connected }, a)
		readable(t, a.it.poll.FD())
		until(t, func() bool { return b.it.openCount == 1 }, b)
		readable(t, ep.conn.attempt.fd)
		ep.conn.deadline = time.Now().Add(-time.Second)
		a.it.Progress()
		flush(t, ep, a, b)
		assert.Len(t, b.got, 1)
		assert.Empty(t, a.errs)
	})
}

// TestHandshake_AcceptsManyAtOnce: many peers, such as the ranks of a job, can connect before the
// first one sends its HELLO, as on a machine with few CPUs. All are accepted.
func TestHandshake_AcceptsManyAtOnce(t *testing.T) {
	const peers = 200
	e := newEnd(t, Config{})
	var conns [peers]net.Conn
	for i := range conns {
		conns[i] = client(t, e)
		e.it.Progress()
	}
	until(t, func() bool { return len(e.it.unproven.all)+int(e.it.limits.refused.Load()) >= peers }, e)
	for i, conn := range conns {
		p := newRawPeer(t)
		p.say(t, conn, e, p.good(e))
		answer, err := readAnswer(t, conn, e)
		require.NoError(t, err, "peer %d", i)
		require.Equal(t, codeOK, answer.code)
	}
}

// TestConnect_ReportsVersion: the error names the version in the answer of the peer.
func TestConnect_ReportsVersion(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := b.it.addr
	addr.port4 = uint16(l.Addr().(*net.TCPAddr).Port)
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: addr.append(nil)})
	require.NoError(t, err)
	defer ep.Close()
	require.NoError(t, ep.(*endpoint).AMShort(msgID, 0, nil))
	done := make(chan error, 1)
	go func() { done <- answerVersion(l, addr.key) }()
	until(t, func() bool { return len(a.errs) == 1 }, a)
	require.NoError(t, <-done)
	assert.ErrorIs(t, a.errs[0], ucs.ErrRejected)
	assert.ErrorContains(t, a.errs[0], fmt.Sprintf("version %d, this side %d", helloVersion+1, helloVersion))
}

// answerVersion accepts one connection and answers with another version.
func answerVersion(l net.Listener, key keypair.PublicKey) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	var b [helloLen]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	h, _ := parseHello(&b, msgHello)
	answer := hello{version: helloVersion + 1, msg: msgAnswer, code: codeVersion, from: key, to: h.from.ID(), conn: h.conn}
	answer.put(&b)
	_, err = conn.Write(b[:])
	return err
}
