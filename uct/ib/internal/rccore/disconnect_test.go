package rccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// leaveSlowly has EPs that are closed from now on wait for their peers, however slow the machine is.
func (s *side) leaveSlowly() { s.it.core.leaveLimit = time.Minute }

// TestClose_ThePeerIsTold: the peer of an EP that is closed in order learns of it, before
// its own work requests to the QP that is gone could time out.
func TestClose_ThePeerIsTold(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		a.leaveSlowly()
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		require.NoError(t, ab.Close())
		until(t, func() bool { return a.it.core.closing.Len() == 0 }, a) // b does nothing for that
		assert.Equal(t, byte(1), b.mem.Bytes()[0], "what was posted takes effect")
		var c comps
		iov := []uct.IOV{{Buf: b.mem.Bytes()[:64], Mem: b.mem}}
		_, err := ba.PutZcopy(iov, a.mem.Addr(), a.key, c.get())
		require.NoError(t, err)
		until(t, func() bool { return len(c.ended) == 1 && len(b.errs) == 1 }, b)
		assert.Equal(t, []uct.Status{ucs.StatusPeerClosed}, c.ended)
		assert.ErrorIs(t, b.errs[0], ucs.ErrPeerClosed)
		assert.ErrorIs(t, b.errs[0], uct.ErrEPFailed)
		assert.NotErrorIs(t, b.errs[0], ucs.ErrConnReset)
		assert.ErrorIs(t, ba.PutShort([]byte{1}, a.mem.Addr(), a.key), ucs.ErrPeerClosed)
		assert.Empty(t, a.errs)
	})
}

// TestClose_MessagesBeforeTheEndArrive: the notice comes behind what was sent.
func TestClose_MessagesBeforeTheEndArrive(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		a.leaveSlowly()
		got := &counter{t: t}
		require.NoError(t, b.it.SetAMHandler(0, got))
		const n = 20
		for i := range uint64(n) {
			require.NoError(t, ab.AMShort(0, i, nil))
		}
		require.NoError(t, ab.Close())
		until(t, func() bool { return len(b.errs) == 1 }, a, b)
		assert.EqualValues(t, n, got.n)
	})
}

// TestClose_BothAtOnce: neither waits for the other.
func TestClose_BothAtOnce(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		require.NoError(t, ab.Close())
		require.NoError(t, ba.Close())
		until(t, func() bool { return a.it.core.closing.Len()+b.it.core.closing.Len() == 0 }, a, b)
		assert.Empty(t, append(a.errs, b.errs...))
	})
}

// TestClose_IfaceTellsEveryPeer: also those that do not look.
func TestClose_IfaceTellsEveryPeer(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, _, _ := over.pair(t, Config{})
		a.leaveSlowly()
		_, _ = join(t, a, b)
		require.NoError(t, a.it.Close())
		until(t, func() bool { return len(b.errs) == 2 }, b)
		for _, err := range b.errs {
			assert.ErrorIs(t, err, ucs.ErrPeerClosed)
		}
	})
}

// TestClose_ThePeerIsToldBehindAFullQueue: also where the send queue has no place for the notice, and
// though the process does not run for long before there is one.
func TestClose_ThePeerIsToldBehindAFullQueue(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const n = 4
		a, b, ab, _ := over.pair(t, Config{TxDepth: n})
		a.leaveSlowly()
		got := &counter{t: t}
		require.NoError(t, b.it.SetAMHandler(0, got))
		for i := range uint64(n) {
			require.NoError(t, ab.AMShort(0, i, nil))
		}
		require.Equal(t, uct.ErrNoResource, ab.AMShort(0, n, nil))
		require.NoError(t, ab.Close())
		ab.core.leaving = stood(a.it.core.leaveLimit)
		until(t, func() bool { return len(b.errs) == 1 }, a, b)
		assert.ErrorIs(t, b.errs[0], ucs.ErrPeerClosed)
		assert.EqualValues(t, n, got.n)
	})
}

// TestClose_IfaceTellsMorePeersThanItsQueueHolds: the notices do not fit into the completion queue
// at once.
func TestClose_IfaceTellsMorePeersThanItsQueueHolds(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const eps = 3 * leaseStep
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{TxCQDepth: 2 * leaseStep}), over.newSide(t, md, Config{})
		a.leaveSlowly()
		for range eps {
			join(t, a, b)
		}
		require.NoError(t, a.it.Close())
		until(t, func() bool { return len(b.errs) >= eps }, b)
		require.Len(t, b.errs, eps)
		for _, err := range b.errs {
			assert.ErrorIs(t, err, ucs.ErrPeerClosed)
		}
	})
}

// TestErrors_OneLine: what an EP failed of is told in one line, once.
func TestErrors_OneLine(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		require.NoError(t, ab.Close())
		until(t, func() bool { return len(b.errs) == 1 }, a, b)
		err := ba.PutShort(nil, 0, a.key)
		assert.Regexp(t, `^`+over.Name()+` dev:1: qp 0x[0-9a-f]+: peer closed the connection$`, err.Error())
	})
}
