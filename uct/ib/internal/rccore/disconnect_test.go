package rccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// extendLeaveLimit extends the time limit of EPs that are closed from now on, for slow machines.
func (s *side) extendLeaveLimit() { s.it.core.disconnectTimeout = time.Minute }

// The EP of the peer fails with ErrPeerClosed, before its own work requests to the closed QP could
// time out.
func TestClose_PeerGetsDisconnect(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		a.extendLeaveLimit()
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		require.NoError(t, ab.Close())
		until(t, func() bool { return a.it.core.closing.Len() == 0 }, a) // without a Progress of b
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

// The disconnect message arrives after the messages before it.
func TestClose_DeliversEarlierMessages(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		a.extendLeaveLimit()
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

// Two sides close at the same time, and neither waits for the other.
func TestClose_BothSides(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		require.NoError(t, ab.Close())
		require.NoError(t, ba.Close())
		until(t, func() bool { return a.it.core.closing.Len()+b.it.core.closing.Len() == 0 }, a, b)
		assert.Empty(t, append(a.errs, b.errs...))
	})
}

// Also peers that do not call Progress get the disconnect message.
func TestClose_IfaceDisconnectsEveryPeer(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, _, _ := over.pair(t, Config{})
		a.extendLeaveLimit()
		_, _ = join(t, a, b)
		require.NoError(t, a.it.Close())
		until(t, func() bool { return len(b.errs) == 2 }, b)
		for _, err := range b.errs {
			assert.ErrorIs(t, err, ucs.ErrPeerClosed)
		}
	})
}

// Also an EP whose send queue is full sends the disconnect message, even if the process is not
// scheduled for a long time before a slot is free.
func TestClose_DisconnectAfterFullQueue(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const n = 4
		a, b, ab, _ := over.pair(t, Config{TxDepth: n})
		a.extendLeaveLimit()
		got := &counter{t: t}
		require.NoError(t, b.it.SetAMHandler(0, got))
		for i := range uint64(n) {
			require.NoError(t, ab.AMShort(0, i, nil))
		}
		require.Equal(t, uct.ErrNoResource, ab.AMShort(0, n, nil))
		require.NoError(t, ab.Close())
		ab.core.disconnectLimit = stalledLimit(a.it.core.disconnectTimeout)
		until(t, func() bool { return len(b.errs) == 1 }, a, b)
		assert.ErrorIs(t, b.errs[0], ucs.ErrPeerClosed)
		assert.EqualValues(t, n, got.n)
	})
}

// The disconnect messages of all EPs do not fit into the completion queue at the same time.
func TestClose_IfaceDisconnectsMorePeersThanCQSlots(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const eps = 3 * reserveStep
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{TxCQDepth: 2 * reserveStep}), over.newSide(t, md, Config{})
		a.extendLeaveLimit()
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

// The error of a failed EP is one line and contains the cause once.
func TestErrors_OneLine(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		require.NoError(t, ab.Close())
		until(t, func() bool { return len(b.errs) == 1 }, a, b)
		err := ba.PutShort(nil, 0, a.key)
		assert.Regexp(t, `^`+over.Name()+` dev:1: qp 0x[0-9a-f]+: peer closed the connection$`, err.Error())
	})
}
