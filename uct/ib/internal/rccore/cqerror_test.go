package rccore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// If the completion queue has overrun, all endpoints of the iface fail, and their operations
// complete without completions of the device. Endpoints of other ifaces continue.
func TestCQError_OverrunFailsAllEPs(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		cfg := Config{TxDepth: 32, TxCQDepth: 64, RxDepth: 16}
		a, b, c := over.newSide(t, md, cfg), over.newSide(t, md, cfg), over.newSide(t, md, cfg)
		ab, ba := join(t, a, b)
		ac, _ := join(t, a, c)
		bc, _ := join(t, b, c)
		unconnected := a.newEP(t)
		ibtest.Overrun(t, md, a.it.core.VerbsCQ())

		var ends comps
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:64], Mem: a.mem}}
		pending, err := ab.PutZcopy(iov, b.mem.Addr(), b.key, ends.get())
		require.NoError(t, err)
		require.True(t, pending)
		pending, err = ac.GetBcopy(make([]byte, 8), c.mem.Addr(), c.key, ends.get())
		require.NoError(t, err)
		require.True(t, pending)
		pending, err = ac.Flush(ends.get())
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return len(ends.ended) == 3 }, a)
		for _, st := range ends.ended {
			assert.Equal(t, ucs.StatusIOError, st)
		}
		a.wantCQError(t, 3)
		for _, e := range []*endpoint{ab, ac, unconnected} {
			assert.ErrorIs(t, e.PutShort([]byte{1}, b.mem.Addr(), b.key), uct.ErrEPFailed)
			require.NoError(t, e.Close())
		}
		_, err = a.it.NewEP(uct.EPParams{})
		assert.ErrorIs(t, err, ucs.ErrIO)

		until(t, func() bool { return ba.PutShort([]byte{1}, a.mem.Addr(), a.key) != nil }, b) // the EP of the peer fails
		require.NoError(t, bc.PutShort([]byte{7}, c.mem.Addr(), c.key))
		flush(t, bc, b)
		assert.Equal(t, byte(7), c.mem.Bytes()[0], "other ifaces go on")
	})
}

// wantCQError requires that n endpoints have failed once each, because of the completion queue.
func (s *side) wantCQError(t *testing.T, n int) {
	t.Helper()
	require.Len(t, s.errs, n)
	for _, err := range s.errs {
		assert.ErrorIs(t, err, uct.ErrEPFailed)
		assert.ErrorIs(t, err, ucs.ErrIO)
		assert.ErrorContains(t, err, "the completion queue has failed")
	}
}

// The device cannot write to an empty completion queue. Only an event reports it, and wakes a
// sleeping iface.
func TestCQError_EventWakesSleeper(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, _, _, _ := over.pair(t, Config{})
		progressUntilIdle(a)
		for a.it.Arm(uct.EventRecv) == uct.ErrBusy {
			a.it.Progress()
		}
		require.False(t, a.it.EventPending())
		a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: a.it.core.VerbsCQ()})
		require.True(t, a.it.EventPending())
		a.it.Progress()
		a.wantCQError(t, 1)
	})
}
