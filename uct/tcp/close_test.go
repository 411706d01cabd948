package tcp

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// TestClose_DeliversPosted: messages that were posted before a close without flush arrive, also if
// the peer is sending to the closing iface.
func TestClose_DeliversPosted(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ab, ba := a.to(b), b.to(a)
	send(t, ab, 0, 64, a, b)
	send(t, ba, 0, 64, a, b)
	flush(t, ab, a, b)
	for range 1000 { // a does not read them
		require.NoError(t, ba.AMShort(msgID, 0, make([]byte, 100)))
	}
	b.it.Progress()
	const count = 500
	for i := range count {
		require.NoError(t, ab.AMShort(msgID, uint64(i+1), make([]byte, 100)))
	}
	a.close()
	until(t, func() bool { return len(b.errs) == 1 }, b)
	require.Len(t, b.got, count+1)
	for i, m := range b.got {
		require.EqualValues(t, i, binary.LittleEndian.Uint64(m))
	}
	assert.ErrorIs(t, b.errs[0], ucs.ErrPeerClosed)
	assert.Same(t, uct.EP(ba), b.failed[0])
}

// stalledSender delays sends. While blocked is set, no send succeeds. The first send after that
// takes the time stall, like a process that is not scheduled, and sends nothing.
type stalledSender struct {
	sockio.Kernel
	blocked bool
	stall   time.Duration
}

func (s *stalledSender) Send(fd int, b []byte) (int, syscall.Errno) {
	if s.blocked {
		return 0, unix.EAGAIN
	}
	if s.stall > 0 {
		for from := time.Now(); time.Since(from) < s.stall; {
			runtime.Gosched()
		}
		s.stall = 0
		return 0, unix.EAGAIN
	}
	return s.Kernel.Send(fd, b)
}

// TestClose_DeliversAfterStall: a process that is not scheduled for longer than LINGER during a
// close still sends its messages.
func TestClose_DeliversAfterStall(t *testing.T) {
	sys := &stalledSender{}
	a, b := newEnd(t, Config{sys: sys, Linger: 100 * time.Millisecond}), newEnd(t, Config{})
	ab, ba := a.to(b), b.to(a)
	send(t, ab, 0, 64, a, b)
	flush(t, ab, a, b)
	sys.blocked = true
	for i := 1; i <= 9; i++ {
		require.NoError(t, ab.AMShort(msgID, uint64(i), nil))
	}
	sys.blocked, sys.stall = false, 2*a.it.cfg.Linger
	a.close()
	until(t, func() bool { return len(b.errs) == 1 }, b)
	assert.Len(t, b.got, 10)
	assert.ErrorIs(t, b.errs[0], ucs.ErrPeerClosed)
	assert.Same(t, uct.EP(ba), b.failed[0])
}

// TestEPClose_ReleasesZcopyBuffers: the caller may reuse its buffers after EP.Close, and the peer
// still receives the posted messages unchanged.
func TestEPClose_ReleasesZcopyBuffers(t *testing.T) {
	cfg := Config{SndBuf: 4 << 10, RcvBuf: 4 << 10}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ep, other := a.to(b), a.to(b)
	want := fill(make([]byte, 60<<10), 1)
	buf := bytes.Clone(want)
	var comps []*counter
	later := 0
	for range 5 {
		c := newCounter(1)
		pending, err := ep.AMZcopy(msgID, []byte("head"), []uct.IOV{{Buf: buf[:100]}, {Buf: buf[100:]}}, &c.Completion)
		require.NoError(t, err)
		if pending {
			later++
			comps = append(comps, c)
		}
	}
	require.Positive(t, later)
	require.NoError(t, ep.Close())
	for _, c := range comps {
		assert.Equal(t, 1, c.fired)
		assert.Equal(t, ucs.StatusCanceled, c.Status)
	}
	clear(buf)
	flush(t, other, a, b)
	until(t, func() bool { return len(b.got) == 5 }, a, b)
	for _, m := range b.got {
		assert.Equal(t, "head", string(m[:4]))
		assert.True(t, bytes.Equal(want, m[4:]))
	}
	assert.Equal(t, a.it.cfg.TxOps, a.it.ops.left)
}

// TestEPClose_DiscardsReplies: replies to gets and atomics of a closed EP are discarded.
func TestEPClose_DiscardsReplies(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep, other := a.to(b), a.to(b)
	key := a.keyOf(b)
	fill(b.mem.buf, 1)
	buf := make([]byte, 100<<10)
	z, u, w := newCounter(1), newCounter(1), newCounter(1)
	sink := make([]byte, 100)
	var word uint64
	for _, post := range []func() (bool, error){
		func() (bool, error) { return ep.GetZcopy([]uct.IOV{{Buf: buf}}, b.mem.addr, key, &z.Completion) },
		func() (bool, error) { return ep.GetBcopy(sink, b.mem.addr, key, &u.Completion) },
		func() (bool, error) {
			return ep.AtomicFetch(uct.AtomicAdd, 8, 1, &word, b.mem.addr, key, &w.Completion)
		},
	} {
		pending, err := post()
		require.NoError(t, err)
		require.True(t, pending)
	}
	require.NoError(t, ep.Close())
	assert.Equal(t, 3, z.fired+u.fired+w.fired)
	flush(t, other, a, b)
	send(t, other, 1, 64, a, b)
	flush(t, other, a, b)
	assert.Equal(t, make([]byte, len(buf)), buf)
	assert.Equal(t, make([]byte, 100), sink)
	assert.Zero(t, word)
	assert.Empty(t, a.errs)
	assert.Equal(t, a.it.cfg.TxOps, a.it.ops.left)
}

// TestMemClose_StopsPut: a put does not write to memory that is closed while its data arrives. The
// put and its EP fail; the connection continues to work.
func TestMemClose_StopsPut(t *testing.T) {
	cfg := Config{SndBuf: 4 << 10, RcvBuf: 4 << 10}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ep, other := a.to(b), a.to(b)
	heap := make([]byte, endMem)
	reg, err := b.md.Reg(heap, uct.AccessRemoteWrite)
	require.NoError(t, err)
	packed, err := reg.PackRKey(nil)
	require.NoError(t, err)
	key, err := a.md.UnpackRKey(packed)
	require.NoError(t, err)
	defer a.md.ReleaseRKey(key)
	c := newCounter(1)
	pending, err := ep.PutZcopy([]uct.IOV{{Buf: fill(make([]byte, endMem), 1)}}, reg.Addr(), key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	until(t, func() bool { return heap[1000] != 0 }, a, b)
	require.NoError(t, reg.Close())
	was := bytes.Clone(heap)
	until(t, func() bool { return c.fired == 1 }, a, b)
	assert.Equal(t, ucs.StatusRemoteAccess, c.Status)
	assert.True(t, bytes.Equal(was, heap), "written after the close")
	require.Len(t, a.errs, 1)
	assert.ErrorIs(t, a.errs[0], ucs.ErrRemoteAccess)
	send(t, other, 1, 64, a, b)
	flush(t, other, a, b)
	assert.Len(t, b.got, 1)
	assert.Len(t, a.errs, 1)
}

// TestMemClose_StopsGet: a get fails if its memory is closed while the data is sent.
func TestMemClose_StopsGet(t *testing.T) {
	cfg := Config{SndBuf: 4 << 10, RcvBuf: 4 << 10}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ep, other := a.to(b), a.to(b)
	mem, err := b.md.Alloc(endMem, uct.AccessRemoteRead)
	require.NoError(t, err)
	fill(mem.Bytes(), 1)
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	key, err := a.md.UnpackRKey(packed)
	require.NoError(t, err)
	defer a.md.ReleaseRKey(key)
	buf := make([]byte, endMem)
	c := newCounter(1)
	pending, err := ep.GetZcopy([]uct.IOV{{Buf: buf}}, mem.Addr(), key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	until(t, func() bool { return buf[1000] != 0 }, a, b)
	require.NoError(t, mem.Close())
	until(t, func() bool { return c.fired == 1 }, a, b)
	assert.Equal(t, ucs.StatusRemoteAccess, c.Status)
	assert.Zero(t, buf[endMem-1])
	send(t, other, 1, 64, a, b)
	flush(t, other, a, b)
	assert.Len(t, b.got, 1)
}

// TestMemTable_ChecksKeyRangeAndAccess: a lookup fails if index, variant, nonce, range or access
// does not match.
func TestMemTable_ChecksKeyRangeAndAccess(t *testing.T) {
	e := newEnd(t, Config{})
	only, err := e.md.Reg(make([]byte, 100), uct.AccessRemoteRead)
	require.NoError(t, err)
	m := only.(*memory)
	k := m.key
	find := func(k wireKey, addr uint64, n int, want uct.Access) bool {
		got, _ := e.md.mems.find(k, addr, n, want)
		return got != nil
	}
	assert.True(t, find(k, m.addr, 100, uct.AccessRemoteRead))
	assert.True(t, find(k, m.addr+99, 1, uct.AccessRemoteRead))
	for name, ok := range map[string]bool{
		"right":       find(k, m.addr, 1, uct.AccessRemoteWrite),
		"atomic":      find(k, m.addr, 8, uct.AccessRemoteAtomic),
		"longer":      find(k, m.addr, 101, uct.AccessRemoteRead),
		"behind":      find(k, m.addr+100, 1, uct.AccessRemoteRead),
		"before":      find(k, m.addr-1, 1, uct.AccessRemoteRead),
		"wrapping":    find(k, ^uint64(0), 2, uct.AccessRemoteRead),
		"wrap to all": find(k, m.addr+50, 1<<62, uct.AccessRemoteRead),
		"place":       find(wireKey{k.index + 1, k.variant, k.nonce}, m.addr, 1, uct.AccessRemoteRead),
		"far place":   find(wireKey{1 << 31, k.variant, k.nonce}, m.addr, 1, uct.AccessRemoteRead),
		"variant":     find(wireKey{k.index, k.variant + 1, k.nonce}, m.addr, 1, uct.AccessRemoteRead),
		"nonce":       find(wireKey{k.index, k.variant, k.nonce ^ 1}, m.addr, 1, uct.AccessRemoteRead),
	} {
		assert.False(t, ok, name)
	}
	require.NoError(t, only.Close())
	assert.False(t, find(k, m.addr, 1, uct.AccessRemoteRead), "closed")
	_, err = only.PackRKey(nil)
	assert.ErrorIs(t, err, uct.ErrClosed)
	again, err := e.md.Reg(make([]byte, 100), uct.AccessRemoteRead)
	require.NoError(t, err)
	n := again.(*memory).key
	assert.Equal(t, k.index, n.index, "the place is used again")
	assert.NotEqual(t, k.variant, n.variant)
	require.NoError(t, again.Close())
}

// endlessReceiver simulates a peer that sends without end once on is set.
type endlessReceiver struct {
	sockio.Kernel
	on bool
}

func (a *endlessReceiver) Recv(fd int, b []byte) (int, syscall.Errno) {
	if a.on {
		return len(b), 0
	}
	return a.Kernel.Recv(fd, b)
}

// TestClose_EndsIfPeerKeepsSending: a peer that sends continuously delays a close by at most
// Config.Linger.
func TestClose_EndsIfPeerKeepsSending(t *testing.T) {
	sys := &endlessReceiver{}
	a, b := newEnd(t, Config{sys: sys, Linger: time.Millisecond}), newEnd(t, Config{})
	ep := a.to(b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	sys.on = true
	a.close()
}

// TestFail_RejectsPostsOfCompletions: completions of a broken connection cannot post on its EPs,
// because nothing would complete these operations.
func TestFail_RejectsPostsOfCompletions(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep, closing := a.to(b), a.to(b)
	key := a.keyOf(b)
	var refusals []error
	put := func(then func()) *counter {
		c := newCounter(1)
		c.Func = func(*uct.Completion) { c.fired++; then() }
		pending, err := ep.PutZcopy([]uct.IOV{{Buf: a.mem.buf}}, b.mem.addr, key, &c.Completion)
		require.NoError(t, err)
		require.True(t, pending)
		return c
	}
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	later := newCounter(1)
	first := put(func() {
		_, err := ep.PutZcopy([]uct.IOV{{Buf: a.mem.buf}}, b.mem.addr, key, &later.Completion)
		refusals = append(refusals, err)
		assert.NoError(t, closing.Close())
	})
	second := put(func() {
		_, err := ep.AMZcopy(msgID, nil, []uct.IOV{{Buf: make([]byte, 8<<10)}}, &later.Completion)
		refusals = append(refusals, err, ep.AMShort(msgID, 0, nil))
	})
	require.NoError(t, killSockets(b.it, true))
	until(t, func() bool { return len(a.errs) > 0 }, a)
	assert.Equal(t, []uct.EP{ep}, a.failed, "reported once, and not for the closed EP")
	assert.Equal(t, 2, first.fired+second.fired)
	require.Len(t, refusals, 3)
	for _, err := range refusals {
		assert.ErrorIs(t, err, uct.ErrEPFailed)
	}
	assert.Zero(t, later.fired)
	assert.Equal(t, a.it.cfg.TxOps, a.it.ops.left)
}

// TestUnblock_StopsWatchingForRoom: EPOLLOUT is disabled after the socket has room.
func TestUnblock_StopsWatchingForRoom(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	until(t, func() bool { return ep.AMShort(msgID, 1, nil) == nil }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	ep.conn.watchOut(true) // as for a full socket that a retry has written to since
	until(t, func() bool { return !ep.conn.watchesOut && a.it.Arm(0) == nil }, a, b)
}
