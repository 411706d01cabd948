package tcp

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/internal/testenv"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first one does not free sync.Pools and objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// greeting returns a valid HELLO of a new key to the iface with the key to.
func greeting(t testing.TB, to *keypair.PublicKey, id uint64) []byte {
	p := newRawPeer(t)
	return p.proven(t, to, hello{version: helloVersion, msg: msgHello, from: p.Public, to: id, conn: 1,
		seg: defaultSegSize, replies: maxReplies})
}

// garbage returns the bytes of an untrusted peer for the iface with this key: random bytes, also
// after the magic number; nothing or a few bytes; a valid HELLO for another iface; a valid HELLO,
// followed by random bytes or by a frame of invalid length; a HELLO without proof.
func garbage(t testing.TB, rng *rand.Rand, key *keypair.PublicKey) []byte {
	b := make([]byte, rng.IntN(200))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	greet := func(id uint64) []byte { return greeting(t, key, id) }
	id := key.ID()
	switch rng.IntN(7) {
	case 0:
		copy(b, "GXCP")
	case 1:
		b = b[:min(len(b), 3)]
	case 2:
		b = greet(rng.Uint64())
	case 3:
		b = append(append(greet(id), 0, 0, 0, 0, frameAM, 0, 0, 1), b...)
	case 4:
		b = append(append(greet(id), 0xff, 0xff, 0xff, 0x7f, framePut, 0, 0, 0), b...)
	case 5:
		b = greet(id)
		b[rng.IntN(proofLen)+offProof] ^= 1 + byte(rng.IntN(255))
	}
	return b
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// impossibleFrame completes the handshake with the iface with this key, sends a frame of invalid
// length, and waits until the iface disconnects.
func impossibleFrame(t *testing.T, addr *net.TCPAddr, key *keypair.PublicKey) {
	c, err := net.DialTCP("tcp", nil, addr)
	if !assert.NoError(t, err) {
		return
	}
	defer c.Close()
	_, err = c.Write(append(greeting(t, key, key.ID()), 0xff, 0xff, 0xff, 0x7f, framePut, 0, 0, 0))
	assert.NoError(t, err)
	_, _ = io.Copy(io.Discard, c)
}

// TestAccept_BoundsResourcesUnderGarbage: many connections with garbage, several at a time, use a
// bounded number of descriptors and bytes, and other connections continue to work.
func TestAccept_BoundsResourcesUnderGarbage(t *testing.T) {
	count := testenv.Rounds(800, 10_000)
	const atOnce, allowed = 16, 8
	a, b := newEnd(t, Config{}), newEnd(t, Config{MaxHandshakes: allowed})
	ep := a.to(b)
	b.to(a)
	send(t, ep, 0, 64, a, b)
	flush(t, ep, a, b)
	before, memory := testenv.OpenFiles(t), heap()
	var wg sync.WaitGroup
	addr := &net.TCPAddr{IP: b.it.dev.v4.AsSlice(), Port: int(b.it.addr.port4)}
	for w := range atOnce {
		rng := rand.New(rand.NewPCG(uint64(w), 3))
		wg.Go(func() {
			for range count / atOnce {
				conn, err := net.DialTCP("tcp", nil, addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.SetLinger(0) // no TIME_WAIT, which would exhaust the ports
				_, _ = conn.Write(garbage(t, rng, &b.it.addr.key))
				if rng.IntN(2) == 0 { // wait until it is closed or times out
					_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					_, _ = conn.Read(make([]byte, 1))
				}
				conn.Close()
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	most, open, sent := 0, 0, uint64(1)
	for !closed(over) {
		send(t, ep, sent, 64, a, b)
		sent++
		flush(t, ep, a, b)
		most, open = max(most, len(b.it.unproven.all)), max(open, b.it.openCount)
		b.got = b.got[:0]
	}
	until(t, func() bool { return len(b.it.unproven.all) == 0 && b.it.openCount == 1 }, a, b)
	refused := make(chan struct{})
	go func() { // alone, so that it is not evicted
		defer close(refused)
		impossibleFrame(t, addr, &b.it.addr.key)
	}()
	until(t, func() bool { return closed(refused) && b.it.openCount == 1 }, a, b)
	assert.Positive(t, b.it.limits.malformed.Load())
	assert.LessOrEqual(t, most, allowed)
	assert.Less(t, open, 16*atOnce)
	assert.Positive(t, b.it.limits.refused.Load())
	assert.Empty(t, b.errs)
	assert.LessOrEqual(t, testenv.OpenFiles(t), before)
	assert.Less(t, int64(heap())-int64(memory), int64(4<<20), "memory grew")
	assert.LessOrEqual(t, b.it.poll.Places(), 16*atOnce, "poller slots")
	t.Logf("%d connections, %d refused, at most %d at a time, %d messages in this time", count, b.it.limits.refused.Load(), most, sent)
}

// TestAccept_ClosesSilentConnections: a connection without a HELLO is closed after HELLO_TIMEOUT.
func TestAccept_ClosesSilentConnections(t *testing.T) {
	e := newEnd(t, Config{HelloTimeout: 50 * time.Millisecond})
	conns := make([]net.Conn, 5)
	for i := range conns {
		conns[i] = client(t, e)
		_, err := conns[i].Write([]byte("GXCP")[:i%4])
		require.NoError(t, err)
	}
	until(t, func() bool { return e.it.limits.refused.Load() == uint64(len(conns)) }, e)
	assert.Empty(t, e.it.unproven.all)
	for _, c := range conns {
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err)
	}
	until(t, func() bool { return e.it.poll.TickInterval() == 0 }, e)
}

func TestAccept_RefusesBeyondMaxConns(t *testing.T) {
	e := newEnd(t, Config{MaxConns: 1})
	for _, want := range []answerCode{codeOK, codeRefused} {
		conn, p := client(t, e), newRawPeer(t)
		p.say(t, conn, e, p.good(e))
		got, err := readAnswer(t, conn, e)
		require.NoError(t, err)
		assert.Equal(t, want, got.code)
		if want == codeOK {
			e.name(&p.Public) // otherwise it would be evicted
		}
	}
}
