package tcp

import (
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// garbage is what a stranger says to the iface with that id: noise, a start that
// looks right, silence, a right HELLO to somebody else, a right one and then noise,
// or a right one and then a frame of a length that there cannot be.
func garbage(rng *rand.Rand, id uint64) []byte {
	b := make([]byte, rng.IntN(200))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	greet := func(to uint64) []byte {
		var h [helloLen]byte
		(&hello{version: helloVersion, msg: msgHello, from: rng.Uint64() | 1, to: to, conn: 1,
			seg: defaultSegSize, answers: maxAnswers}).put(&h)
		return h[:]
	}
	switch rng.IntN(6) {
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
	}
	return b
}

// TestStrangers: 10,000 connections that speak garbage, many at a time, cost
// bounded descriptors and memory, and traffic goes on.
func TestStrangers(t *testing.T) {
	count := 10_000
	if testing.Short() || testenv.RaceEnabled {
		count = 1_000
	}
	const atOnce, allowed = 16, 8
	a, b := newEnd(t, Config{}), newEnd(t, Config{Strangers: allowed})
	ep := a.to(b)
	send(t, ep, 0, 64, a, b)
	flush(t, ep, a, b)
	before, memory := descriptors(t), heap()
	var wg sync.WaitGroup
	addr := &net.TCPAddr{IP: b.it.dev.v4.AsSlice(), Port: int(b.it.addr.port4)}
	for w := range atOnce {
		rng := rand.New(rand.NewPCG(uint64(w), 3))
		wg.Go(func() {
			for range count / atOnce {
				stranger, err := net.DialTCP("tcp", nil, addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = stranger.SetLinger(0) // no TIME_WAIT, which would use up the ports
				_, _ = stranger.Write(garbage(rng, b.it.addr.id))
				if rng.IntN(2) == 0 { // wait until it is sent away, or its time is over
					_ = stranger.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					_, _ = stranger.Read(make([]byte, 1))
				}
				stranger.Close()
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	most, open, sent := 0, 0, uint64(1)
	for running := true; running; {
		select {
		case <-over:
			running = false
		default:
		}
		send(t, ep, sent, 64, a, b)
		sent++
		flush(t, ep, a, b)
		most, open = max(most, len(b.it.strangers)), max(open, b.it.opened)
		b.got = b.got[:0]
	}
	until(t, func() bool { return len(b.it.strangers) == 0 && b.it.opened == 1 }, a, b)
	assert.LessOrEqual(t, most, allowed)
	assert.Less(t, open, 16*atOnce)
	assert.Positive(t, b.it.dropped)
	assert.Positive(t, b.it.malformed)
	assert.Empty(t, b.errs)
	assert.LessOrEqual(t, descriptors(t), before)
	assert.Less(t, int64(heap())-int64(memory), int64(4<<20), "memory grew")
	assert.LessOrEqual(t, len(b.it.poll.slots), 16*atOnce, "poller slots")
	t.Logf("%d strangers, %d dropped, at most %d known at a time, %d messages meanwhile", count, b.it.dropped, most, sent)
}

// TestStrangers_Silent: who says nothing is sent away when its time is over,
// also while nobody calls often.
func TestStrangers_Silent(t *testing.T) {
	e := newEnd(t, Config{HelloTimeout: 50 * time.Millisecond})
	conns := make([]net.Conn, 5)
	for i := range conns {
		conns[i] = client(t, e)
		_, err := conns[i].Write([]byte("GXCP")[:i%4])
		require.NoError(t, err)
	}
	until(t, func() bool { return len(e.it.strangers) == len(conns) }, e)
	until(t, func() bool { return len(e.it.strangers) == 0 }, e)
	assert.EqualValues(t, len(conns), e.it.dropped)
	for _, c := range conns {
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err)
	}
	until(t, func() bool { return !e.it.poll.ticking }, e)
}

func TestStrangers_MaxConns(t *testing.T) {
	e := newEnd(t, Config{MaxConns: 1})
	for i, want := range []answerCode{codeOK, codeRefused} {
		conn, h := client(t, e), good(e)
		h.from += uint64(i)
		say(t, conn, h)
		got, err := hear(t, conn, e)
		require.NoError(t, err)
		assert.Equal(t, want, got.code)
	}
}
