package rccore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// flushed returns a pair of sides. An invalid key of a has moved the QP of b to ERR, and the device
// has flushed two writes and a flush of b. Events of the device do not reach b.
func (p poster) flushed(t *testing.T, c *comps) (b *side, ba *endpoint) {
	t.Helper()
	a, b, ab, ba := p.pair(t, Config{})
	b.md.Unsubscribe(b.it.core)
	require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), uct.RKey(1)))
	until(t, func() bool { return len(a.errs) == 1 }, a) // the QP of b is then in ERR
	iov := []uct.IOV{{Buf: b.mem.Bytes()[:64], Mem: b.mem}}
	for range 2 {
		_, err := ba.PutZcopy(iov, a.mem.Addr(), a.key, c.get())
		require.NoError(t, err)
	}
	_, err := ba.Flush(c.get())
	require.NoError(t, err)
	until(t, func() bool {
		for i := range b.it.core.flushed { // the wait for the event must not end here
			b.it.core.flushed[i].limit = timelimit.New(testenv.Watchdog)
		}
		return b.it.core.hasFlushed(ba.core)
	}, b)
	progressUntilIdle(b)
	assert.Empty(t, c.ended, "nothing ends before the event")
	assert.Empty(t, b.errs)
	return b, ba
}

// For each type of event, each operation completes once, with the status of the event.
func TestFlushed_StatusOfEvent(t *testing.T) {
	for _, tc := range []struct {
		event verbs.EventType
		want  ucs.Status
	}{
		{verbs.EventQPAccessErr, ucs.StatusIOError},
		{verbs.EventPeerClosed, ucs.StatusPeerClosed},
		{verbs.EventQPFatal, ucs.StatusConnReset},
	} {
		t.Run(tc.want.String(), func(t *testing.T) {
			each(t, func(t *testing.T, over poster) {
				var c comps
				b, ba := over.flushed(t, &c)
				b.it.core.AsyncEvent(verbs.AsyncEvent{Type: tc.event, QP: ba.core.link.(*QPLink).QP})
				until(t, func() bool { return len(c.ended) == 3 }, b)
				assert.Equal(t, []uct.Status{tc.want, tc.want, tc.want}, c.ended)
				require.Len(t, b.errs, 1)
				assert.ErrorIs(t, b.errs[0], tc.want.Err())
				assert.Empty(t, b.it.core.flushed)
				progressUntilIdle(b)
				assert.Len(t, c.ended, 3)
			})
		})
	}
}

// If the event arrives while the process does not run, the iface handles it before the end of the
// wait.
func TestFlushed_StalledProcess(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		var c comps
		b, ba := over.flushed(t, &c)
		b.it.core.flushed[0].limit = stalledLimit(testenv.Watchdog)
		b.it.Progress()
		require.Empty(t, c.ended)
		b.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventPeerClosed, QP: ba.core.link.(*QPLink).QP})
		until(t, func() bool { return len(c.ended) == 3 }, b)
		assert.Equal(t, []uct.Status{ucs.StatusPeerClosed, ucs.StatusPeerClosed, ucs.StatusPeerClosed}, c.ended)
	})
}

// If no event arrives, the wait ends.
func TestFlushed_WithoutEvent(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		var c comps
		b, _ := over.flushed(t, &c)
		b.it.core.flushed[0].limit = timelimit.New(1)
		until(t, func() bool { return len(c.ended) == 3 }, b)
		assert.Equal(t, []uct.Status{ucs.StatusConnReset, ucs.StatusConnReset, ucs.StatusConnReset}, c.ended)
		require.Len(t, b.errs, 1)
		assert.ErrorIs(t, b.errs[0], ucs.ErrConnReset)
	})
}

// A closed EP does not wait for an event.
func TestFlushed_ClosedEP(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		var c comps
		b, ba := over.flushed(t, &c)
		require.NoError(t, ba.Close())
		until(t, func() bool { return len(c.ended) == 3 && b.it.core.closing.Len() == 0 }, b)
		assert.Equal(t, []uct.Status{ucs.StatusCanceled, ucs.StatusCanceled, ucs.StatusCanceled}, c.ended)
		assert.Empty(t, b.errs)
		assert.Empty(t, b.it.core.flushed)
	})
}
