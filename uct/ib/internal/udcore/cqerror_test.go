package udcore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// wantCQError checks that the only endpoint has failed because of the completion queue.
func (s *side) wantCQError() {
	s.t.Helper()
	require.Len(s.t, s.errs, 1)
	assert.ErrorIs(s.t, s.errs[0], uct.ErrEPFailed)
	assert.ErrorIs(s.t, s.errs[0], ucs.ErrIO)
	assert.ErrorContains(s.t, s.errs[0], "the completion queue has failed")
}

// TestCQError_OverrunFailsAllEPs: after an overrun of the completion queue, all endpoints of the
// iface fail, also later ones, and the operations in flight complete.
func TestCQError_OverrunFailsAllEPs(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := newSide(t, md, Config{RxDepth: 16}), newSide(t, md, Config{RxDepth: 16})
		e := a.epTo(b)
		e.send(t, 1)
		until(t, func() bool { return e.c.proto.Unacked() == 0 }, a, b)
		mem, err := md.Alloc(4096, uct.AccessAll)
		require.NoError(t, err)
		defer func() { require.NoError(t, mem.Close()) }()
		ibtest.Overrun(t, md, a.it.core.cq)

		var ended []uct.Status
		comp := func() *uct.Completion {
			return &uct.Completion{Count: 1, Func: func(c *uct.Completion) { ended = append(ended, c.Status) }}
		}
		pending, err := e.AMZcopy(0, make([]byte, 8), []uct.IOV{{Buf: mem.Bytes()[:64], Mem: mem}}, comp())
		require.NoError(t, err)
		require.True(t, pending)
		pending, err = e.Flush(comp())
		require.NoError(t, err)
		require.True(t, pending)
		arrive(t, func() bool { return len(ended) == 2 }, a)
		assert.Equal(t, []uct.Status{ucs.StatusIOError, ucs.StatusIOError}, ended)
		a.wantCQError()
		assert.ErrorIs(t, e.AMShort(0, 2, nil), uct.ErrEPFailed)

		a.errs = nil
		later := a.epTo(b)
		later.send(t, 3)
		arrive(t, func() bool { return len(a.errs) > 0 }, a)
		a.wantCQError()
	})
}

// TestCQError_EventWakesSleeper: an error of an empty queue is reported only by an event, which
// wakes the sleeper.
func TestCQError_EventWakesSleeper(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := newSide(t, md, Config{}), newSide(t, md, Config{})
		e := a.epTo(b)
		e.send(t, 1)
		until(t, func() bool { return e.c.proto.Unacked() == 0 }, a, b)
		for a.it.Arm(uct.EventRecv) == uct.ErrBusy {
			a.it.Progress()
		}
		require.False(t, a.it.EventPending())
		a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: a.it.core.cq})
		require.True(t, a.it.EventPending())
		a.it.Progress()
		a.wantCQError()
	})
}
