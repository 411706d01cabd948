package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/wire"
)

// ifaceOf returns the fake of worker x's i-th transport.
func (f *fabric) ifaceOf(x *end, i int) *fakeIface {
	if m, ok := x.w.ifaces[i].Iface.Iface.(unflaggedIface); ok {
		return m.fakeIface
	}
	return x.w.ifaces[i].Iface.Iface.(*fakeIface)
}

// deliver delivers a message, with an event if the iface is armed.
func (i *fakeIface) deliver(data []byte, event bool) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	i.rx = append(i.rx, fakeMsg{wire.AMWireup, data})
	if event {
		i.event()
	}
}

// TestIdleIface_ActivatedByEvent: an idle iface is not polled. An event makes the worker poll it for a while.
func TestIdleIface_ActivatedByEvent(t *testing.T) {
	for _, unflagged := range []bool{false, true} {
		kind := likeUD()
		kind.unflagged = unflagged
		p, f := fakePair(t, Config{}, likeRC(), kind)
		p.connect().warm()
		p.idle()
		require.Equal(t, 1, p.b.w.engine.Polled())
		ud := f.ifaceOf(&p.b, 1)
		before := ud.polls
		for range 10 * engine.IdleTicks * engine.LooksPerPoll {
			p.b.w.Progress()
		}
		require.Equal(t, before, ud.polls, "it is idle")

		ud.deliver([]byte("nonsense"), true)
		for range 2 * engine.IdleTicks * engine.LooksPerPoll {
			p.b.w.Progress()
		}
		assert.Equal(t, uint64(1), p.b.w.stats.badMessages.Load(), "unflagged=%v", unflagged)
		assert.Equal(t, 2, p.b.w.engine.Polled(), "it is polled for a while")
		for range 2 * engine.CooldownPolls {
			p.b.w.Progress()
		}
		assert.Equal(t, 1, p.b.w.engine.Polled(), "it is idle again")
	}
}

// TestSleep_HandlesArrivalsBeforeArm: a message that has arrived before a sleeper arms an idle iface causes no event,
// and must be handled.
func TestSleep_HandlesArrivalsBeforeArm(t *testing.T) {
	for _, unflagged := range []bool{false, true} {
		kind := likeUD()
		kind.unflagged = unflagged
		p, f := fakePair(t, Config{}, likeRC(), kind)
		p.connect().warm()
		p.idle()
		f.ifaceOf(&p.b, 1).deliver([]byte("nonsense"), false)
		p.b.w.engine.Spin.Fixed = engine.YieldPolls
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, p.b.w.engine.Until(ctx, func() bool { return p.b.w.stats.badMessages.Load() == 1 }))
	}
}

// TestIdleIface_WithoutACK: if the peer does not acknowledge the last message of a handshake, its iface is
// polled rarely, also while another one is polled. It is closed when the ACK arrives.
func TestIdleIface_WithoutACK(t *testing.T) {
	for _, unflagged := range []bool{false, true} {
		kind := likeUD()
		kind.unflagged = unflagged
		p, f := fakePair(t, Config{}, likeRC(), kind)
		ud := f.ifaceOf(&p.a, 1)
		ud.unacked = true
		p.connect().warm()
		p.idle()
		require.False(t, p.a.ep.link.carrier.Idle())
		assert.Equal(t, 1, p.a.w.engine.Polled(), "unflagged=%v", unflagged)
		before, looks := ud.polls, 100
		for range looks * (engine.IdleTicks + 1) {
			p.a.w.Progress()
		}
		assert.InDelta(t, looks, ud.polls-before, 1, "unflagged=%v", unflagged)

		ud.unacked = false
		p.until(p.a.ep.link.carrier.Idle)
		p.idle()
		before = ud.polls
		for range engine.IdleTicks * engine.LooksPerPoll {
			p.a.w.Progress()
		}
		assert.Equal(t, before, ud.polls, "it is idle, unflagged=%v", unflagged)
	}
}
