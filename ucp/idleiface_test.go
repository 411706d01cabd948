package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/wire"
)

// TestIdleIface_ActivatedByEvent: an idle iface is not polled. An event makes the worker poll it for a while.
func TestIdleIface_ActivatedByEvent(t *testing.T) {
	for _, unflagged := range []bool{false, true} {
		kind := faketp.LikeUD()
		kind.Unflagged = unflagged
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), kind)
		p.Connect().Warm()
		idle(p)
		require.Equal(t, 1, p.B.W.Engine().Polled())
		ud := f.IfaceOf(1, 1)
		before := ud.Polls
		for range 10 * engine.IdleTicks * engine.ChecksPerSyscall {
			p.B.W.Progress()
		}
		require.Equal(t, before, ud.Polls, "it is idle")

		ud.Deliver(wire.AMWireup, []byte("nonsense"), true)
		for range 2 * engine.IdleTicks * engine.ChecksPerSyscall {
			p.B.W.Progress()
		}
		assert.Equal(t, uint64(1), p.B.W.BadMessages().Load(), "unflagged=%v", unflagged)
		assert.Equal(t, 2, p.B.W.Engine().Polled(), "it is polled for a while")
		for range 2 * engine.CooldownPolls {
			p.B.W.Progress()
		}
		assert.Equal(t, 1, p.B.W.Engine().Polled(), "it is idle again")
	}
}

// TestSleep_HandlesArrivalsBeforeArm: a message that has arrived before a sleeper arms an idle iface causes no event,
// and must be handled.
func TestSleep_HandlesArrivalsBeforeArm(t *testing.T) {
	for _, unflagged := range []bool{false, true} {
		kind := faketp.LikeUD()
		kind.Unflagged = unflagged
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), kind)
		p.Connect().Warm()
		idle(p)
		f.IfaceOf(1, 1).Deliver(wire.AMWireup, []byte("nonsense"), false)
		p.B.W.Engine().Spin.Fixed = engine.YieldPolls
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
		defer cancel()
		require.NoError(t, p.B.W.Engine().Until(ctx, func() bool { return p.B.W.BadMessages().Load() == 1 }))
	}
}

// TestIdleIface_WithoutACK: if the peer does not acknowledge the last message of a handshake, its iface is
// polled rarely, also while another one is polled. It is closed when the ACK arrives.
func TestIdleIface_WithoutACK(t *testing.T) {
	for _, unflagged := range []bool{false, true} {
		kind := faketp.LikeUD()
		kind.Unflagged = unflagged
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), kind)
		ud := f.IfaceOf(0, 1)
		ud.Unacked = true
		p.Connect().Warm()
		idle(p)
		require.False(t, p.A.EP.Carrier().Idle())
		assert.Equal(t, 1, p.A.W.Engine().Polled(), "unflagged=%v", unflagged)
		before, looks := ud.Polls, 100
		for range looks * (engine.IdleTicks + 1) {
			p.A.W.Progress()
		}
		assert.InDelta(t, looks, ud.Polls-before, 1, "unflagged=%v", unflagged)

		ud.Unacked = false
		p.Until(p.A.EP.Carrier().Idle)
		idle(p)
		before = ud.Polls
		for range engine.IdleTicks * engine.ChecksPerSyscall {
			p.A.W.Progress()
		}
		assert.Equal(t, before, ud.Polls, "it is idle, unflagged=%v", unflagged)
	}
}
