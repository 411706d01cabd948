package ucp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

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
