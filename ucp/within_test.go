package ucp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// TestWithin_Agree: for all configurations and numbers of devices, the time that is sent is within the limits of both
// sides; the dialer can fail on each device but the last and still connect; and the listener does not fail a device
// before the dialer.
func TestWithin_Agree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Just(time.Duration(config.Infinite)),
			rapid.Map(rapid.Int64Range(1, int64(time.Hour)), func(n int64) time.Duration { return time.Duration(n) }))
		dialer, listener := Config{WireupTimeout: limit.Draw(rt, "dialer")}, Config{WireupTimeout: limit.Draw(rt, "listener")}
		hello := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(rt, "HelloTimeout"))
		paths := rapid.IntRange(1, 64).Draw(rt, "paths")
		l := &Listener{w: &Worker{ctx: &Context{cfg: listener}}, cfg: ListenConfig{HelloTimeout: hello}}
		proposed := wholeMillis(dialer.wireupTimeout())
		within := l.connectWithin(proposed)
		assert.Positive(rt, within)
		assert.Zero(rt, within%time.Millisecond, "whole milliseconds, as on the wire")
		assert.LessOrEqual(rt, within, wholeMillis(connectShare*hello))
		for _, c := range []Config{dialer, listener} {
			if d := c.wireupTimeout(); d > 0 {
				assert.LessOrEqual(rt, within, wholeMillis(d))
			}
		}
		attempt := attemptWithin(within, paths)
		if paths > 1 {
			assert.LessOrEqual(rt, time.Duration(paths)*attempt, within-attempt)
		}
		assert.LessOrEqual(rt, attempt, within, "the listener waits for a device as long as the dialer tries it")
	})
}

// TestWithin_BothSides: both sides of Dial have the time that ACCEPT contains.
func TestWithin_BothSides(t *testing.T) {
	p := newPair(t, tlsets.Real("tcp", "tcp"), Config{})
	l := p.b.listen(t, "tcp", ":0", ListenConfig{HelloTimeout: 2 * time.Second})
	peer, err := p.dialTo(l, DialConfig{})
	require.NoError(t, err)
	const agreed = connectShare * 2 * time.Second
	assert.Equal(t, agreed, l.peers[0].EP.link.within)
	assert.Equal(t, attemptWithin(agreed, len(peer.EP.peer.Aux)), peer.EP.link.within)
	assert.GreaterOrEqual(t, l.peers[0].EP.link.expires, agreed+2*time.Second, "since the worker was made")

	p = newPair(t, tlsets.Real("tcp", "tcp"), Config{WireupTimeout: 3 * time.Second})
	l = p.b.listen(t, "tcp", ":0", ListenConfig{})
	_, err = p.dialTo(l, DialConfig{})
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, l.peers[0].EP.link.within)
}

// TestDial_Late: a dialer that does not connect within the time of the ACCEPT, because the worker of the listener makes
// no progress, fails with an error that says so.
func TestDial_Late(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}) // its connections need no progress of the peer
	l := p.b.listen(t, "tcp", ":0", ListenConfig{HelloTimeout: time.Second / connectShare})
	accepts := func(ctx context.Context, done func() bool) error {
		testenv.ProgressWithin(t, patience, func() bool {
			p.a.w.Progress()
			if len(p.b.w.connecting.listening.expected) == 0 {
				p.b.w.Progress()
			}
			return done() || ctx.Err() != nil
		})
		if done() {
			return nil
		}
		return ctx.Err()
	}
	_, err := p.a.w.dial(t.Context(), "tcp", l.Addr().String(), &DialConfig{}, accepts)
	require.ErrorIs(t, err, ucs.ErrTimedOut)
	require.ErrorIs(t, err, errLate)
	assert.ErrorContains(t, err, "of 1s")
	p.until(func() bool { return p.a.w.eps.Len()+p.b.w.eps.Len() == 0 })
}
