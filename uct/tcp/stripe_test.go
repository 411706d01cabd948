package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

func TestConformance_Rails(t *testing.T) {
	testenv.SkipSweep(t, "a suite; the one with one connection and the tests of striping cover it")
	h := harness()
	h.Config = func(o ucttest.Options) any {
		cfg := tiny(o).(Config)
		cfg.ConnsPerPeer, cfg.StripeThresh = 3, 128
		return cfg
	}
	ucttest.Test(t, localPeers(h))
}

// openRailed opens a pair and an EP with as many rails as the configurations permit.
func openRailed(t *testing.T, mine, theirs Config) (a, b *end, ep *endpoint, key uct.RKey) {
	t.Helper()
	a, b = newEnd(t, mine), newEnd(t, theirs)
	ep, key = a.to(b), a.keyOf(b)
	send(t, ep, 0, 64, a, b)
	flush(t, ep, a, b)
	putLarge(t, a, b, ep, key, make([]byte, 4<<10))
	until(t, func() bool { return len(a.it.opening) == 0 }, a, b)
	return a, b, ep, key
}

// putLarge puts data to the start of b's memory and waits for the completion.
func putLarge(t *testing.T, a, b *end, ep *endpoint, key uct.RKey, data []byte) ucs.Status {
	t.Helper()
	c := newCounter(1)
	half := len(data) / 3
	push(t, func() error {
		_, err := ep.PutZcopy([]uct.IOV{{Buf: data[:half]}, {}, {Buf: data[half:]}}, b.mem.addr, key, &c.Completion)
		return err
	}, a, b)
	until(t, func() bool { return c.fired == 1 }, a, b)
	return c.Status
}

func (c *conn) openRails() (open []*conn) {
	for _, r := range c.rails {
		if r != nil && r.state == connOpen {
			open = append(open, r)
		}
	}
	return open
}

var threeRails = Config{ConnsPerPeer: 4, StripeThresh: 4 << 10}

// TestRails_PutUsesAll: large puts use all connections and arrive completely. Both directions use
// the same connections.
func TestRails_PutUsesAll(t *testing.T) {
	a, b, ep, key := openRailed(t, threeRails, threeRails)
	require.Len(t, ep.conn.openRails(), 3)
	for _, n := range []int{4 << 10, 4<<10 + 1, 4<<10 + 4*64 - 1, 100_003, endMem} {
		data := fill(make([]byte, n), n)
		require.Equal(t, ucs.StatusOK, putLarge(t, a, b, ep, key, data))
		require.True(t, bytes.Equal(data, b.mem.buf[:n]), "%d bytes", n)
	}
	for _, r := range ep.conn.openRails() {
		assert.EqualValues(t, 5, r.sent)
		assert.Equal(t, r.sent, r.acked)
	}
	back, keyA := b.to(a), b.keyOf(a)
	data := fill(make([]byte, endMem), 9)
	require.Equal(t, ucs.StatusOK, putLarge(t, b, a, back, keyA, data))
	assert.True(t, bytes.Equal(data, a.mem.buf))
	assert.Len(t, back.conn.openRails(), 3)
	assert.Equal(t, 4, a.it.openCount)
	assert.Equal(t, 4, b.it.openCount)
	assert.Equal(t, a.it.cfg.TxOps, a.it.ops.left)
}

// TestRails_UsesAllowed: large puts use as many connections as the peer allows.
func TestRails_UsesAllowed(t *testing.T) {
	for _, tc := range []struct{ theirs, open int }{{1, 0}, {2, 1}, {16, 3}} {
		a, b, ep, key := openRailed(t, threeRails, Config{ConnsPerPeer: tc.theirs})
		assert.Len(t, ep.conn.openRails(), tc.open)
		data := fill(make([]byte, endMem), tc.theirs)
		require.Equal(t, ucs.StatusOK, putLarge(t, a, b, ep, key, data))
		assert.True(t, bytes.Equal(data, b.mem.buf))
		assert.Empty(t, a.errs)
	}
}

// TestRails_DialedByBothSides: both sides dial the rails at the same time.
func TestRails_DialedByBothSides(t *testing.T) {
	a, b := newEnd(t, threeRails), newEnd(t, threeRails)
	ab, ba := a.to(b), b.to(a)
	keyB, keyA := a.keyOf(b), b.keyOf(a)
	send(t, ab, 0, 64, a, b)
	flush(t, ab, a, b)
	data := fill(make([]byte, endMem), 1)
	c := newCounter(2)
	for _, post := range []func() (bool, error){
		func() (bool, error) { return ab.PutZcopy([]uct.IOV{{Buf: data}}, b.mem.addr, keyB, &c.Completion) },
		func() (bool, error) { return ba.PutZcopy([]uct.IOV{{Buf: data}}, a.mem.addr, keyA, &c.Completion) },
	} {
		push(t, func() error { _, err := post(); return err }, a, b)
	}
	until(t, func() bool { return c.fired == 1 && len(a.it.opening)+len(b.it.opening) == 0 }, a, b)
	assert.Equal(t, ucs.StatusOK, c.Status)
	require.Len(t, ab.conn.openRails(), 3)
	require.Len(t, ba.conn.openRails(), 3)
	for i := range ab.conn.rails {
		assert.Equal(t, ab.conn.rails[i].id, ba.conn.rails[i].id)
	}
	assert.Equal(t, 4, a.it.openCount)
	assert.Equal(t, 4, b.it.openCount)
}

// TestRails_FenceAndFlushWaitForParts: a message after a fence arrives after all parts of a put,
// and a flush waits for all parts.
func TestRails_FenceAndFlushWaitForParts(t *testing.T) {
	slow := threeRails
	slow.SndBuf, slow.RcvBuf = 4<<10, 4<<10
	a, b, ep, key := openRailed(t, slow, slow)
	whole := false
	require.NoError(t, b.it.SetAMHandler(msgID+1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		whole = bytes.Equal(a.mem.buf, b.mem.buf)
		return false
	})))
	fill(a.mem.buf, 3)
	c, f := newCounter(1), newCounter(1)
	pending, err := ep.PutZcopy([]uct.IOV{{Buf: a.mem.buf}}, b.mem.addr, key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	require.Equal(t, 4, ep.parts)
	require.NoError(t, ep.Fence())
	require.ErrorIs(t, ep.AMShort(msgID+1, 0, nil), uct.ErrNoResource)
	busy, err := ep.Flush(&f.Completion)
	require.NoError(t, err)
	require.True(t, busy)
	f.Func = func(*uct.Completion) { f.fired++; assert.Equal(t, 1, c.fired, "flush before the put") }
	push(t, func() error { return ep.AMShort(msgID+1, 0, nil) }, a, b)
	flush(t, ep, a, b)
	assert.True(t, whole)
	assert.Equal(t, 1, f.fired)
}

// TestRails_PutAfterFenceIsOrdered: a large put after a fence does not overtake earlier puts that
// the peer has not executed yet.
func TestRails_PutAfterFenceIsOrdered(t *testing.T) {
	a, b, ep, key := openRailed(t, threeRails, threeRails)
	require.Len(t, ep.conn.openRails(), 3)
	const n = 8000
	last := b.mem.addr + endMem - n // the last part covers it
	old, fresh := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, endMem)
	for round := range testenv.Rounds(10, 200) {
		for err := error(nil); err != uct.ErrNoResource; err = ep.PutShort(old, last, key) {
			require.NoError(t, err)
		}
		require.NoError(t, ep.Fence())
		require.Equal(t, ucs.StatusOK, putLarge(t, a, b, ep, key, fresh))
		flush(t, ep, a, b)
		require.Equal(t, -1, bytes.IndexByte(b.mem.buf, 1), "round %d: a put before the fence was executed last", round)
	}
	before := ep.conn.openRails()[0].sent
	require.NoError(t, ep.Fence())
	require.Equal(t, ucs.StatusOK, putLarge(t, a, b, ep, key, fresh))
	assert.Greater(t, ep.conn.openRails()[0].sent, before, "striped, as everything before the fence is executed")
}

// TestRails_EPCloseCancelsOnce: closing the EP completes a striped put once, and the caller may
// reuse the buffer.
func TestRails_EPCloseCancelsOnce(t *testing.T) {
	slow := threeRails
	slow.SndBuf, slow.RcvBuf = 4<<10, 4<<10
	a, b, ep, key := openRailed(t, slow, slow)
	other := a.to(b)
	c := newCounter(1)
	data := fill(make([]byte, endMem), 1)
	want := bytes.Clone(data)
	pending, err := ep.PutZcopy([]uct.IOV{{Buf: data}}, b.mem.addr, key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	require.NoError(t, ep.Close())
	assert.Equal(t, 1, c.fired)
	assert.Equal(t, ucs.StatusCanceled, c.Status)
	clear(data)
	until(t, func() bool { return a.it.ops.left == a.it.cfg.TxOps }, a, b)
	flush(t, other, a, b)
	assert.True(t, bytes.Equal(want, b.mem.buf))
}

// TestRails_FailureInFlightFailsEP: a rail that fails during a put fails the EP once. After the
// failure of an idle rail, puts use the other rails.
func TestRails_FailureInFlightFailsEP(t *testing.T) {
	slow := threeRails
	slow.SndBuf, slow.RcvBuf = 4<<10, 4<<10
	a, b, ep, key := openRailed(t, slow, slow)
	b.it.table[a.it.addr.key].rails[1].fail(errMalformed)
	until(t, func() bool { return len(ep.conn.openRails()) == 2 }, a, b)
	require.Equal(t, ucs.StatusOK, putLarge(t, a, b, ep, key, fill(make([]byte, endMem), 5)))
	require.Empty(t, a.errs)

	c := newCounter(1)
	pending, err := ep.PutZcopy([]uct.IOV{{Buf: a.mem.buf}}, b.mem.addr, key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	b.it.table[a.it.addr.key].rails[0].fail(errMalformed)
	until(t, func() bool { return c.fired == 1 && len(a.errs) == 1 }, a, b)
	assert.Equal(t, ucs.StatusConnReset, c.Status)
	assert.ErrorIs(t, a.errs[0], ucs.ErrConnReset)
	assert.ErrorContains(t, a.errs[0], errRailLost.Error())
	until(t, func() bool { return a.it.openCount+b.it.openCount == 0 }, a, b)
	assert.Empty(t, a.it.known.All())
	assert.Equal(t, a.it.cfg.TxOps, a.it.ops.left)
}

// TestRails_ReplacementRefusedAfterFailure: if the peer replaces a rail with operations in flight,
// the EP fails and the new rail is refused, because its first connection has failed.
func TestRails_ReplacementRefusedAfterFailure(t *testing.T) {
	slow := threeRails
	slow.SndBuf, slow.RcvBuf = 4<<10, 4<<10
	a, b, ep, key := openRailed(t, slow, slow)
	c := newCounter(1)
	pending, err := ep.PutZcopy([]uct.IOV{{Buf: a.mem.buf}}, b.mem.addr, key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	lost := ep.conn.rails[0]
	require.Positive(t, lost.awaitingReply.n)

	next := client(t, a)
	p := rawPeer{Pair: b.it.identity}
	h := p.good(a)
	h.conn, h.other, h.rail = lost.id+1, lost.id, lost.rail
	p.say(t, next, a, h)
	answer, err := readAnswer(t, next, a)
	require.NoError(t, err)
	assert.Equal(t, codeRefused, answer.code)
	assert.ErrorIs(t, a.it.refused.last, errRail)
	until(t, func() bool { return len(a.errs) == 1 && c.fired == 1 }, a, b)
	assert.ErrorIs(t, a.errs[0], ucs.ErrConnReset)
	assert.ErrorContains(t, a.errs[0], errRailLost.Error())
	until(t, func() bool { return a.it.openCount+b.it.openCount == 0 }, a, b)
}

// TestRails_NoAllocation: striped puts do not allocate.
func TestRails_NoAllocation(t *testing.T) {
	if testenv.RaceEnabled {
		t.Skip("allocation counts differ under the race detector")
	}
	a, b, ep, key := openRailed(t, threeRails, threeRails)
	c := newCounter(0)
	iov := []uct.IOV{{Buf: a.mem.buf[:64<<10]}}
	put := func() {
		c.Count, c.fired = 1, 0
		_, err := ep.PutZcopy(iov, b.mem.addr, key, &c.Completion)
		for err != nil || c.fired == 0 {
			a.it.Progress()
			b.it.Progress()
			if err != nil {
				_, err = ep.PutZcopy(iov, b.mem.addr, key, &c.Completion)
			}
		}
	}
	for range 100 {
		put()
	}
	assert.Zero(t, testing.AllocsPerRun(100, put))
	assert.Greater(t, ep.conn.openRails()[2].sent, uint64(200))
}
