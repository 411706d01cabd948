package tcp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
	"github.com/gucx/gucx/uct/ucttest"
)

// faults makes system calls with faults: partial transfers, EAGAIN and EINTR, and a reset after a
// number of bytes.
type faults struct {
	sockio.Kernel
	rng     *rand.Rand
	chunk   int  // maximum number of bytes of one call; 0: no limit
	refuse  int  // one of so many calls transfers nothing, but no two consecutive sends, which would mean a full socket; 0: none
	refused bool // the last send transferred nothing
	resetAt int  // number of bytes in both directions before a reset; 0: none
	moved   int
	resets  int
	iov     [maxVector]unix.Iovec
}

func newFaults(seed uint64) *faults { return &faults{rng: rand.New(rand.NewPCG(seed, 1))} }

func (f *faults) before(sending bool) syscall.Errno {
	if f.resetAt > 0 && f.moved >= f.resetAt && f.resets == 0 {
		f.resets++
		return unix.ECONNRESET
	}
	again := sending && f.refused
	if sending {
		f.refused = false
	}
	if f.refuse > 0 && f.rng.IntN(f.refuse) == 0 && !again {
		f.refused = f.refused || sending
		if f.rng.IntN(2) == 0 {
			return unix.EINTR
		}
		return unix.EAGAIN
	}
	return 0
}

// part returns how many of n bytes the call may transfer.
func (f *faults) part(n int) int {
	if f.chunk == 0 || n <= 1 {
		return n
	}
	return 1 + f.rng.IntN(min(n, f.chunk))
}

func (f *faults) after(n int, errno syscall.Errno) (int, syscall.Errno) {
	f.moved += n
	return n, errno
}

func (f *faults) Send(fd int, b []byte) (int, syscall.Errno) {
	if len(b) == helloLen && b[0] == 'G' && b[1] == 'X' { // sendHello expects that a handshake message is written at once
		return f.Kernel.Send(fd, b)
	}
	if errno := f.before(true); errno != 0 {
		return 0, errno
	}
	return f.after(f.Kernel.Send(fd, b[:f.part(len(b))]))
}

func (f *faults) Recv(fd int, b []byte) (int, syscall.Errno) {
	if errno := f.before(false); errno != 0 {
		return 0, errno
	}
	return f.after(f.Kernel.Recv(fd, b[:f.part(len(b))]))
}

func (f *faults) Sendv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	if errno := f.before(true); errno != 0 {
		return 0, errno
	}
	return f.after(f.Kernel.Sendv(fd, f.cut(iov)))
}

func (f *faults) Recvv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	if errno := f.before(false); errno != 0 {
		return 0, errno
	}
	return f.after(f.Kernel.Recvv(fd, f.cut(iov)))
}

// cut returns a part of iov.
func (f *faults) cut(iov []unix.Iovec) []unix.Iovec {
	total := 0
	for i := range iov {
		total += int(iov[i].Len)
	}
	n := f.part(total)
	out := f.iov[:copy(f.iov[:], iov)]
	for i := range out {
		if n <= int(out[i].Len) {
			out[i].SetLen(n)
			return out[:i+1]
		}
		n -= int(out[i].Len)
	}
	return out
}

// failing makes sends fail with errno, once it is set.
type failing struct {
	sockio.Kernel
	errno syscall.Errno
}

func (f *failing) Send(fd int, b []byte) (int, syscall.Errno) {
	if f.errno != 0 {
		return 0, f.errno
	}
	return f.Kernel.Send(fd, b)
}

// TestFlush_CompletesIfWritesFail: a flush of an iface completes once, also if its writes find
// broken connections.
func TestFlush_CompletesIfWritesFail(t *testing.T) {
	for _, polled := range []bool{false, true} {
		f := &failing{}
		a := newEnd(t, Config{sys: f})
		var peers []*end
		for range 4 {
			b := newEnd(t, Config{})
			ep := a.to(b)
			send(t, ep, 1, 64, a, b)
			flush(t, ep, a, b)
			require.NoError(t, ep.AMShort(msgID, 2, nil))
			a.it.Progress()
			ep.conn.tx.collecting = false // the next message is written at once
			peers = append(peers, b)
		}
		f.errno = unix.ETIMEDOUT
		c := newCounter(1)
		comp := &c.Completion
		if polled {
			comp = nil
		}
		busy, err := a.it.Flush(comp)
		require.NoError(t, err)
		require.True(t, busy)
		until(t, func() bool { return len(a.errs) == len(peers) }, append(peers, a)...)
		busy, err = a.it.Flush(nil)
		require.NoError(t, err)
		assert.False(t, busy)
		if !polled {
			assert.Equal(t, 1, c.fired)
			assert.NotEqual(t, ucs.StatusOK, c.Status)
		}
	}
}

func TestConformance_Faults(t *testing.T) {
	h := harness()
	// With a few bytes per call, large operations take long and find nothing more.
	h.Except = []string{"revoke", "cost", "fence/matrix", "atomic/senders", "atomic/linearizable", "wake/race", "limit"}
	h.Config = func(o ucttest.Options) any {
		cfg := tiny(o).(Config)
		f := newFaults(1)
		f.chunk, f.refuse = 200, 5
		cfg.sys = f
		return cfg
	}
	ucttest.Test(t, localPeers(h))
}

// TestFaults_OneByteAtATime: the decoder handles every split of the stream.
func TestFaults_OneByteAtATime(t *testing.T) {
	f := newFaults(2)
	f.chunk, f.refuse = 1, 3
	cfg := Config{SegSize: 4 << 10, sys: f, SendvThresh: 16}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ep, key := a.to(b), a.keyOf(b)
	buf := fill(make([]byte, 900), 1)
	for i := range 8 {
		send(t, ep, uint64(i), 8+i, a, b)
		c := newCounter(1)
		push(t, func() error {
			_, err := ep.PutZcopy([]uct.IOV{{Buf: buf[:300]}, {Buf: buf[300:]}}, b.mem.addr+uint64(i), key, &c.Completion)
			return err
		}, a, b)
		got := make([]byte, 700)
		g := newCounter(1)
		push(t, func() error {
			_, err := ep.GetZcopy([]uct.IOV{{Buf: got[:13]}, {Buf: got[13:]}}, b.mem.addr+uint64(i)+5, key, &g.Completion)
			return err
		}, a, b)
		until(t, func() bool { return c.fired+g.fired == 2 }, a, b)
		require.Equal(t, ucs.StatusOK, g.Status)
		require.Equal(t, buf[5:705], got)
	}
	flush(t, ep, a, b)
	require.Len(t, b.got, 8)
	for i, m := range b.got {
		require.EqualValues(t, i, binary.LittleEndian.Uint64(m))
		require.Len(t, m, 8+i)
	}
}

// TestFaults_ResetFailsEPOnce: a reset at any byte of the stream fails the EP once, with the
// reason, and completes every operation once. Other connections continue to work.
func TestFaults_ResetFailsEPOnce(t *testing.T) {
	for at := helloLen + 1; at < 4000; at += 371 { // a reset of the handshake would cause a new attempt
		f := newFaults(uint64(at))
		f.chunk, f.resetAt = 64, at
		a := newEnd(t, Config{sys: f, SendvThresh: 16})
		b, c := newEnd(t, Config{}), newEnd(t, Config{})
		good := a.to(c)
		key := a.keyOf(b)
		bad := a.to(b)
		var comps []*counter
		pending := 0
		until(t, func() bool {
			k := newCounter(1)
			later, err := bad.PutZcopy([]uct.IOV{{Buf: make([]byte, 100)}}, b.mem.addr, key, &k.Completion)
			if later {
				pending++
				comps = append(comps, k)
			}
			return bad.state == epFailed || err != nil && err != uct.ErrNoResource
		}, a, b)
		require.ErrorIs(t, bad.AMShort(msgID, 0, nil), uct.ErrEPFailed)
		require.ErrorIs(t, bad.AMShort(msgID, 0, nil), ucs.ErrConnReset)
		require.Len(t, a.errs, 1)
		assert.Same(t, uct.EP(bad), a.failed[0])
		fired := 0
		for _, k := range comps {
			fired += k.fired
		}
		assert.Equal(t, pending, fired, "reset after %d bytes", at)
		send(t, good, 1, 64, a, c)
		flush(t, good, a, c)
		assert.Len(t, c.got, 1)
		assert.Len(t, a.errs, 1)
		for _, e := range []*end{a, b, c} {
			e.close()
		}
	}
}

// TestSmallSocketBuffers_NoDeadlock: large operations in both directions complete with small socket
// buffers.
func TestSmallSocketBuffers_NoDeadlock(t *testing.T) {
	cfg := Config{SegSize: 8 << 10, SndBuf: 4 << 10, RcvBuf: 4 << 10}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ab, ba := a.to(b), b.to(a)
	keyB, keyA := a.keyOf(b), b.keyOf(a)
	const n = 512 << 10
	fill(a.mem.buf[:n], 1)
	fill(b.mem.buf[:n], 2)
	bufA, bufB := make([]byte, n), make([]byte, n)
	c := newCounter(4)
	posts := []func() (bool, error){
		func() (bool, error) {
			return ab.GetZcopy([]uct.IOV{{Buf: bufA}}, b.mem.addr, keyB, &c.Completion)
		},
		func() (bool, error) {
			return ba.GetZcopy([]uct.IOV{{Buf: bufB}}, a.mem.addr, keyA, &c.Completion)
		},
		func() (bool, error) {
			return ab.PutZcopy([]uct.IOV{{Buf: a.mem.buf[:n]}}, b.mem.addr+n, keyB, &c.Completion)
		},
		func() (bool, error) {
			return ba.PutZcopy([]uct.IOV{{Buf: b.mem.buf[:n]}}, a.mem.addr+n, keyA, &c.Completion)
		},
	}
	for _, post := range posts {
		push(t, func() error { _, err := post(); return err }, a, b)
	}
	until(t, func() bool { return c.fired == 1 }, a, b)
	require.Equal(t, ucs.StatusOK, c.Status)
	assert.True(t, bytes.Equal(bufA, b.mem.buf[:n]), "get by a")
	assert.True(t, bytes.Equal(bufB, a.mem.buf[:n]), "get by b")
	assert.True(t, bytes.Equal(b.mem.buf[n:2*n], a.mem.buf[:n]), "put by a")
	assert.True(t, bytes.Equal(a.mem.buf[n:2*n], b.mem.buf[:n]), "put by b")
}
