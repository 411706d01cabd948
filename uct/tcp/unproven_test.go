package tcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// admitted connects p with e, which has no EP to p.
func (p rawPeer) admitted(t testing.TB, e *end) net.Conn {
	t.Helper()
	c := client(t, e)
	p.say(t, c, e, p.good(e))
	answer, err := readAnswer(t, c, e)
	require.NoError(t, err)
	require.Equal(t, codeOK, answer.code)
	return c
}

// rawFrame returns a frame with length n in the header, and the given bytes of its body.
func rawFrame(kind, id uint8, n int, body ...byte) []byte {
	b := make([]byte, frameLen)
	putHeader(b, kind, id, n)
	return append(b, body...)
}

// hasRead reports whether e has read a part of a frame of the peer with this key.
func (e *end) hasRead(k *keypair.PublicKey) bool {
	c := e.it.table[*k]
	return c == nil || c.rx.tail > c.rx.head
}

// TestUnproven_FloodIsBounded: untrusted peers that complete the handshake and then send half a
// frame use a bounded number of connections and bytes. A peer with an EP can connect in the
// meantime.
func TestUnproven_FloodIsBounded(t *testing.T) {
	const flood, allowed = 400, 200
	a, b := newEnd(t, Config{}), newEnd(t, Config{MaxHandshakes: allowed})
	before := heap()
	half := rawFrame(frameAM, msgID, 65000, make([]byte, 60000)...)
	var honest *endpoint
	for i := range flood {
		p := newRawPeer(t)
		c := p.admitted(t, b)
		_, err := c.Write(half)
		require.NoError(t, err)
		until(t, func() bool { return b.hasRead(&p.Public) }, b)
		if i == flood/2 {
			b.to(a) // as ucp does for a peer that it has accepted
			honest = a.to(b)
			send(t, honest, 1, 64, a, b)
			flush(t, honest, a, b)
		}
		require.LessOrEqual(t, len(b.it.unproven.all), allowed)
		require.LessOrEqual(t, b.it.unproven.memory, unprovenMemory)
	}
	send(t, honest, 2, 64, a, b)
	flush(t, honest, a, b)
	assert.Len(t, b.got, 2)
	assert.Empty(t, append(a.errs, b.errs...))
	assert.LessOrEqual(t, b.it.openCount, allowed+1)
	assert.Less(t, int64(heap())-int64(before), int64(unprovenMemory+6<<20), "of both ifaces and %d clients", flood)
	assert.GreaterOrEqual(t, b.it.limits.evicted.Load(), uint64(flood-allowed))
}

// TestUnproven_RepliesUseSmallBuffers: replies to unproven peers that do not read are in small
// buffers, so that many such peers do not evict each other.
func TestUnproven_RepliesUseSmallBuffers(t *testing.T) {
	const flood = 100
	b := newEnd(t, Config{})
	for range flood {
		p := newRawPeer(t)
		c := p.admitted(t, b)
		_, err := c.Write(append(rawFrame(frameFlush, 0, flushLen, make([]byte, flushLen)...), 1))
		require.NoError(t, err)
		until(t, func() bool { return b.hasRead(&p.Public) }, b)
		require.Len(t, b.it.table[p.Public].tx.buf, smallTx+replyRoom)
	}
	assert.Zero(t, b.it.unproven.memory)
	assert.Zero(t, b.it.limits.evicted.Load())
}

// TestUnproven_ExpiresIncompleteFrames: an unproven peer must send a first frame, and the rest of
// each frame that it has begun, in time. Between frames it has no time limit.
func TestUnproven_ExpiresIncompleteFrames(t *testing.T) {
	whole := rawFrame(frameAM, msgID, 3, 1, 2, 3)
	put := append(rawFrame(framePut, putAck, targetLen+8), make([]byte, targetLen+1)...)
	for _, tc := range []struct {
		name   string
		sends  []byte
		stalls bool
	}{
		{"nothing", nil, true},
		{"part of a header", whole[:5], true},
		{"half a message", whole[:frameLen+1], true},
		{"message", whole, false},
		{"message and a half", append(append([]byte{}, whole...), whole[:9]...), true},
		{"half the data of a put", put, true},
		{"put", append(append([]byte{}, put...), make([]byte, 7)...), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, p := newEnd(t, Config{}), newRawPeer(t)
			conn := p.admitted(t, e)
			c := e.it.table[p.Public]
			now := time.Now()
			_, err := conn.Write(tc.sends)
			require.NoError(t, err)
			want := c.rxPosition()
			until(t, func() bool { return len(tc.sends) == 0 || c.rxPosition() != want }, e)

			later := now.Add(e.it.cfg.HelloTimeout)
			if len(tc.sends) > 0 {
				e.it.expireUnproven(later) // more has arrived
			} else {
				later = now
				c.unproven.deadline = now.Add(e.it.cfg.HelloTimeout)
			}
			require.Equal(t, connOpen, c.state)
			e.it.expireUnproven(later.Add(e.it.cfg.HelloTimeout))
			require.Equal(t, connOpen, c.state, "not before its time")
			e.it.expireUnproven(later.Add(e.it.cfg.HelloTimeout + time.Nanosecond))
			if !tc.stalls {
				e.it.expireUnproven(later.Add(time.Hour))
				assert.Equal(t, connOpen, c.state)
				assert.Zero(t, e.it.limits.stalled.Load())
				return
			}
			assert.EqualValues(t, 1, e.it.limits.stalled.Load())
			assert.ErrorIs(t, c.err, errStalled)
			until(t, func() bool { return c.state == connGone }, e)
			assert.Empty(t, e.it.unproven.all)
		})
	}
}

// TestUnproven_EPRemovesLimits: an EP that names the peer removes the limits, also those of rails,
// and enlarges the buffer, which still contains the received bytes.
func TestUnproven_EPRemovesLimits(t *testing.T) {
	cfg := Config{ConnsPerPeer: 2}
	e, p := newEnd(t, cfg), newRawPeer(t)
	conn := p.admitted(t, e)
	railConn := client(t, e)
	h := p.good(e)
	h.conn, h.rail = 6, 1
	p.say(t, railConn, e, h)
	answer, err := readAnswer(t, railConn, e)
	require.NoError(t, err)
	require.Equal(t, codeOK, answer.code)
	require.Len(t, e.it.unproven.all, 2)
	c := e.it.table[p.Public]
	assert.Len(t, c.rx.buf, smallRx)
	message := rawFrame(frameAM, msgID, 100, fill(make([]byte, 100), 1)...)
	_, err = conn.Write(message[:50])
	require.NoError(t, err)
	until(t, func() bool { return e.hasRead(&p.Public) }, e)

	e.name(&p.Public)
	assert.Empty(t, e.it.unproven.all)
	assert.Len(t, c.rx.buf, int(e.it.cfg.RxBuf))
	assert.Len(t, c.rails[0].rx.buf, int(e.it.cfg.RxBuf))
	_, err = conn.Write(message[50:])
	require.NoError(t, err)
	until(t, func() bool { return len(e.got) == 1 }, e)
	assert.Equal(t, message[frameLen:], e.got[0])
	e.it.expireUnproven(time.Now().Add(time.Hour))
	assert.Equal(t, connOpen, c.state)
}

// TestUnproven_LargeMessagesAreAccounted: an unproven peer may send messages of any size. The
// memory for them is accounted until the connection is closed.
func TestUnproven_LargeMessagesAreAccounted(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	sizes := []int{8, smallRx - frameLen, smallRx - frameLen + 1, defaultSegSize, 8}
	for i, n := range sizes {
		payload := fill(make([]byte, n), i)
		push(t, func() error { _, err := ep.AMBcopy(msgID, packer(payload)); return err }, a, b)
		flush(t, ep, a, b)
		require.Len(t, b.got, i+1)
		assert.Equal(t, payload, b.got[i])
	}
	assert.Equal(t, int(b.it.cfg.RxBuf+b.it.cfg.TxBuf), b.it.unproven.memory)
	for range 2 * busyFrames { // many small ones need nothing more
		send(t, ep, 1, 64, a, b)
	}
	flush(t, ep, a, b)
	a.close()
	until(t, func() bool { return b.it.openCount == 0 }, b)
	assert.Zero(t, b.it.unproven.memory)
}

// TestUnproven_RailEvictsItsFirstConnection: a rail that needs large buffers evicts the first connection to its peer, and
// so fails itself. Nothing remains accounted for them.
func TestUnproven_RailEvictsItsFirstConnection(t *testing.T) {
	e, p := newEnd(t, Config{ConnsPerPeer: 2, RxBuf: unprovenMemory / 2}), newRawPeer(t)
	large := rawFrame(frameAM, msgID, smallRx, 1)
	conn := p.admitted(t, e)
	_, err := conn.Write(large)
	require.NoError(t, err)
	until(t, func() bool { return e.it.unproven.memory > unprovenMemory/2 }, e)
	railConn, h := client(t, e), p.good(e)
	h.conn, h.rail = 6, 1
	p.say(t, railConn, e, h)
	answer, err := readAnswer(t, railConn, e)
	require.NoError(t, err)
	require.Equal(t, codeOK, answer.code)
	_, err = railConn.Write(large)
	require.NoError(t, err)
	until(t, func() bool { return e.it.openCount == 0 }, e)
	assert.Empty(t, e.it.unproven.all)
	assert.Zero(t, e.it.unproven.memory)
}

// TestUnproven_ManyClientsWithoutEviction: unproven peers, twice as many as could have large
// buffers, put, get and flush at the same time, and none is evicted.
func TestUnproven_ManyClientsWithoutEviction(t *testing.T) {
	const many = 2*unprovenMemory/defaultTxBuf + 1
	b := newEnd(t, Config{})
	data := fill(make([]byte, inlineGet), 1)
	for range many {
		a := newEnd(t, Config{})
		ep, key := a.to(b), a.keyOf(b)
		push(t, func() error { return ep.PutShort(data, b.mem.addr, key) }, a, b)
		flush(t, ep, a, b)
		copy(b.mem.buf, data)
		got, reads := make([]byte, inlineGet), newCounter(4)
		for range reads.Count {
			push(t, func() error {
				_, err := ep.GetZcopy([]uct.IOV{{Buf: got}}, b.mem.addr, key, &reads.Completion)
				return err
			}, a, b)
		}
		until(t, func() bool { return reads.fired == 1 }, a, b)
		assert.Equal(t, data, got)
	}
	assert.Len(t, b.it.unproven.all, many)
	assert.Zero(t, b.it.unproven.memory)
	assert.Zero(t, b.it.limits.evicted.Load())
}

// packer is a uct.Packer of bytes.
type packer []byte

func (p packer) Pack(dst []byte) int { return copy(dst, p) }

// TestUnproven_EvictedAtMaxConns: with MAX_CONNS connections, a new one evicts an unproven one.
func TestUnproven_EvictedAtMaxConns(t *testing.T) {
	const most = 3
	e := newEnd(t, Config{MaxConns: most})
	for range most {
		newRawPeer(t).admitted(t, e)
	}
	oldest := e.it.unproven.all[0].c
	p := newRawPeer(t)
	c := p.admitted(t, e)
	assert.ErrorIs(t, oldest.err, errEvicted)
	assert.Equal(t, most, e.it.openCount)
	assert.NotNil(t, e.it.table[p.Public])

	for range most { // a rail whose first connection is evicted for it
		p = newRawPeer(t)
		c = p.admitted(t, e)
	}
	h := p.good(e)
	h.rail = 1
	e.it.cfg.ConnsPerPeer = 2
	for _, o := range e.it.unproven.all {
		if o.c.key != p.Public {
			o.c.executed = 1 // they have sent a request, so the connection of p is evicted first
		}
	}
	_, answer, why := e.it.evaluate(&h, "")
	assert.Equal(t, codeRefused, answer.code)
	assert.ErrorIs(t, why, errRail)
	require.NoError(t, c.Close())
}

func TestSourceOf(t *testing.T) {
	same := func(a, b string) bool { return sourceOf(netip.MustParseAddr(a)) == sourceOf(netip.MustParseAddr(b)) }
	assert.True(t, same("127.0.0.1", "127.9.9.9"))
	assert.True(t, same("127.0.0.1", "::1"))
	assert.True(t, same("192.0.2.1", "::ffff:192.0.2.1"))
	assert.False(t, same("192.0.2.1", "192.0.2.2"))
	assert.True(t, same("2001:db8::1", "2001:db8::ffff:1"))
	assert.False(t, same("2001:db8::1", "2001:db8:0:1::1"))
	assert.True(t, same("fe80::1%lo", "fe80::2"))
	assert.False(t, same("127.0.0.1", "192.0.2.1"))
}

// TestUnproven_EvictionIsFairToSources: an eviction takes a connection of a source with the most
// connections: one that has sent no request before others, and the oldest one of these. The totals
// remain consistent.
func TestUnproven_EvictionIsFairToSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := unprovenSet{count: map[source]int{}}
		ip := func(n int) source { return sourceOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})) }
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 4), 1, 30).Draw(t, "sources") {
			p := &unproven{from: ip(n), c: &conn{}, memory: n}
			if rapid.Bool().Draw(t, "useful") {
				p.c.executed = 1
			}
			u.memory += p.memory
			u.add(p)
		}
		for len(u.all) > 0 {
			p := u.victim(anyUnproven)
			older := true
			for _, o := range u.all {
				if u.count[o.from] > u.count[p.from] {
					t.Fatalf("source %v has %d connections, but one of a source with %d was evicted", o.from, u.count[o.from], u.count[p.from])
				}
				if o == p {
					older = false
				}
				if o.from == p.from && o != p && (p.sentRequest() && !o.sentRequest() || older && o.sentRequest() == p.sentRequest()) {
					t.Fatal("another connection of the source should be evicted first")
				}
			}
			u.remove(p)
			u.remove(p)
		}
		if u.memory != 0 || len(u.count) != 0 || u.victim(anyUnproven) != nil {
			t.Fatalf("left: %+v", u)
		}
	})
}

// TestUnproven_AtMostHalfOfDescriptors: unproven connections use at most half of the descriptors.
func TestUnproven_AtMostHalfOfDescriptors(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 200, Max: was.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	assert.Equal(t, 100, (&Config{MaxHandshakes: 1000}).allowedHandshakes())
	assert.Equal(t, 99, (&Config{MaxHandshakes: 99}).allowedHandshakes())
}

// TestUnproven_Stats: the counters of the limits are in Stats.
func TestUnproven_Stats(t *testing.T) {
	e := newEnd(t, Config{MaxHandshakes: 1})
	n := stats.New("tcp")
	e.it.AddStats(n)
	newRawPeer(t).admitted(t, e)
	c := newRawPeer(t).admitted(t, e)
	_, err := c.Write(binary.LittleEndian.AppendUint64(nil, 0))
	require.NoError(t, err)
	until(t, func() bool { return e.it.limits.malformed.Load() == 1 }, e)
	got := map[string]uint64{}
	for _, v := range n.Snapshot().Counters {
		got[v.Name] = v.N
	}
	assert.Equal(t, map[string]uint64{"no_handler": 0, "refused_connections": 0, "evicted_connections": 1,
		"stalled_connections": 0, "malformed_connections": 1, "requests_sent": 0, "requests_received": 0}, got)
}

// TestRefused_DisconnectIsNotLogged: a disconnect during the handshake is counted, but not logged.
func TestRefused_DisconnectIsNotLogged(t *testing.T) {
	e := newEnd(t, Config{})
	require.NoError(t, client(t, e).Close())
	until(t, func() bool { return e.it.limits.refused.Load() == 1 }, e)
	assert.NoError(t, e.it.refused.last)
}
