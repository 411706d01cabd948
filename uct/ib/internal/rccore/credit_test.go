package rccore

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// withWindow returns a configuration with a window of w messages.
func withWindow(w int) Config { return Config{FCWindow: w, RxDepth: 64} }

func TestCredits_Exhausted(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const window = 5
		a, b, ab, _ := over.pair(t, withWindow(window))
		got := &counter{t: t}
		require.NoError(t, b.it.SetAMHandler(1, got))
		for i := range uint64(window) {
			require.NoError(t, ab.AMShort(1, i, nil))
		}
		assert.Equal(t, uct.ErrNoResource, ab.AMShort(1, window, nil))
		_, err := ab.AMBcopy(1, &fill{8})
		assert.Equal(t, uct.ErrNoResource, err)
		_, err = ab.AMZcopy(1, make([]byte, 8), nil, nil)
		assert.Equal(t, uct.ErrNoResource, err)
		progressUntilIdle(a)
		assert.Equal(t, uct.ErrNoResource, ab.AMShort(1, window, nil), "completions are not credits")
		assert.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key), "puts need none")

		tried := 0
		r := &uct.PendingReq{Func: func(*uct.PendingReq) error {
			tried++
			return ab.AMShort(1, window, nil)
		}}
		flush(t, ab, a)
		require.NoError(t, ab.AddPending(r))
		assert.Equal(t, uct.ErrNoResource, ab.PutShort(nil, b.mem.Addr(), b.key), "nothing overtakes")
		until(t, func() bool { return got.n == window+1 }, a, b)
		assert.Positive(t, tried)
		assert.Nil(t, r.Next)
		assert.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key), "the fast path is open again")
		flush(t, ab, a, b)
	})
}

func TestCredits_OneWay(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, withWindow(4))
		got := &counter{t: t}
		require.NoError(t, b.it.SetAMHandler(0, got))
		const total = 1000
		sent := uint64(0)
		until(t, func() bool {
			for sent < total && ab.AMShort(0, sent, nil) == nil {
				sent++
			}
			return got.n == total
		}, a, b)
		until(t, func() bool { return ab.core.Credits+int32(ba.core.creditsDue) == 4 }, a, b) // no credit is lost
		progressUntilIdle(a, b)
		assert.EqualValues(t, 4, ab.core.Credits+int32(ba.core.creditsDue), "no credit is made up")
		assert.Zero(t, ab.core.creditsDue)
		assert.Empty(t, a.errs)
	})
}

// Two sides send at the same time as fast as the credits allow, with windows of a few messages.
// Neither order nor credits are lost.
func TestCredits_BothWays(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const window, total = 4, 2000
		a, b, ab, ba := over.pair(t, withWindow(window))
		var got, sent [2]uint64
		for i, s := range []*side{a, b} {
			require.NoError(t, s.it.SetAMHandler(0, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
				require.Equal(t, got[i], binary.LittleEndian.Uint64(data))
				got[i]++
				return false
			})))
		}
		until(t, func() bool {
			for i, e := range []*endpoint{ab, ba} {
				for sent[i] < total && e.AMShort(0, sent[i], nil) == nil {
					sent[i]++
				}
			}
			return got == [2]uint64{total, total}
		}, a, b)
		until(t, func() bool { // no credit is lost
			return ab.core.Credits+int32(ba.core.creditsDue) == window && ba.core.Credits+int32(ab.core.creditsDue) == window
		}, a, b)
		assert.Empty(t, append(a.errs, b.errs...))
	})
}

func TestCredits_ReturnWithMessages(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, withWindow(4))
		got := &counter{t: t}
		require.NoError(t, a.it.SetAMHandler(0, got))
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
			require.NoError(t, ba.AMShort(0, uint64(data[0]), nil))
			return false
		})))
		for i := range uint64(100) {
			require.NoError(t, ab.AMShort(0, i, nil))
			until(t, func() bool { return got.n == i+1 }, a, b)
		}
		progressUntilIdle(a, b)
		assert.EqualValues(t, 100, ab.core.PI, "no message was sent only for credits")
		assert.EqualValues(t, 100, ba.core.PI)
	})
}

// Credits that an active message returned are not returned again in the same Progress, and neither
// are credits of less than half of the window.
func TestCredits_ReturnedOnce(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const window = 6
		a, b, ab, ba := over.pair(t, withWindow(window))
		got := 0
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
			if got++; got == window/2 {
				require.NoError(t, ba.AMShort(0, 0, nil))
			}
			return false
		})))
		for range window - 1 {
			require.NoError(t, ab.AMShort(0, 0, nil))
		}
		flush(t, ab, a) // b has all messages
		b.it.Progress()
		require.Equal(t, window-1, got, "in one Progress")
		assert.EqualValues(t, 1, ba.core.PI)
		assert.EqualValues(t, window/2-1, ba.core.creditsDue)
		assert.Nil(t, b.it.core.creditReturners)
		flush(t, ba, b, a)
	})
}

// An EP that is closed while it is listed to return credits returns none.
func TestCredits_ClosedEPReturnsNone(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const window = 6
		a, b, ab, ba := over.pair(t, withWindow(window))
		_, other := join(t, a, b)
		got := 0
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
			if got++; got == window/2 {
				require.Same(t, ba.core, b.it.core.creditReturners)
				require.NoError(t, other.Close())
				require.Same(t, ba.core, b.it.core.creditReturners, "another one has closed")
				require.NoError(t, ba.Close())
				require.Nil(t, b.it.core.creditReturners)
				require.False(t, ba.core.listedForCredits)
			}
			return false
		})))
		for range window / 2 {
			require.NoError(t, ab.AMShort(0, 0, nil))
		}
		until(t, func() bool { return len(a.errs) == 2 && got == window/2 }, a, b)
	})
}

// A sender without credit and without a work request in flight detects that its peer does not exist
// any more.
func TestCredits_DetectsDeadPeer(t *testing.T) {
	eachOperation(t, Config{FCWindow: 2, Timeout: time.Hour}, func(t *testing.T, s *script, e *EP, op operation) {
		if !op.message {
			return
		}
		var c comps
		refused := func() {
			t.Helper()
			require.Equal(t, uct.ErrNoResource, op.post(e, c.get()))
		}
		for range 2 {
			require.NoError(t, op.post(e, c.get()))
		}
		s.took()
		refused()
		assert.Empty(t, s.took(), "a completion is on its way")
		s.complete(e, e.Sig, verbs.WCSuccess)
		s.took() // operations with a completion may have posted a signaled write
		s.complete(e, e.Sig, verbs.WCSuccess)
		probe := func() uint64 {
			t.Helper()
			refused()
			assert.Empty(t, s.took(), "the stall has only begun")
			e.probeAt = 0
			refused()
			wr := s.one()
			assert.Equal(t, verbs.SendWR{ID: e.PI, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}, wr)
			refused()
			assert.Empty(t, s.took(), "the probe is in flight")
			return wr.ID
		}
		for range 2 {
			s.complete(e, probe(), verbs.WCSuccess)
		}
		s.complete(e, probe(), verbs.WCRetryExcErr)
		assert.ErrorIs(t, op.post(e, c.get()), uct.ErrEPFailed)
		require.Len(t, s.errs, 1)
		assert.ErrorIs(t, s.errs[0], ucs.ErrTimedOut)
	})
}

// post posts a work request as a broken peer would, past the checks of the EP.
func post(t *testing.T, e *endpoint, wr verbs.SendWR) {
	t.Helper()
	require.NoError(t, e.core.post(&[1]verbs.SendWR{wr}))
}

func TestReceive_BrokenPeer(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		for _, tc := range []struct {
			name string
			wr   verbs.SendWR
		}{
			{"credits never taken", verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: uint32(rcwire.Credits(1))}},
			{"credits with a message", verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: uint32(rcwire.AM(0, 9))}},
			{"reserved bits", verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: 1 << 8}},
			{"no immediate", verbs.SendWR{Opcode: verbs.OpSend}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				a, b, ab, ba := over.pair(t, withWindow(4))
				ab2, ba2 := join(t, a, b)
				post(t, ba, tc.wr)
				until(t, func() bool { return len(a.errs) > 0 }, a, b)
				assert.ErrorIs(t, a.errs[0], uct.ErrEPFailed)
				assert.ErrorIs(t, a.errs[0], ucs.ErrRemoteInvalid)
				assert.ErrorIs(t, ab.AMShort(0, 0, nil), uct.ErrEPFailed)

				got := &counter{t: t}
				require.NoError(t, a.it.SetAMHandler(0, got))
				require.NoError(t, ba2.AMShort(0, 0, nil))
				until(t, func() bool { return got.n == 1 }, a, b)
				assert.NoError(t, ab2.PutShort([]byte{1}, b.mem.Addr(), b.key), "other endpoints go on")
				flush(t, ab2, a, b)
				assert.Len(t, a.errs, 1)
			})
		}
	})
}
