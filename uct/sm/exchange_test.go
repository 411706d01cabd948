package sm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/uct"
)

// TestExchange: the delay of the first poll grows, up to a limit, while messages follow each other and first polls find
// none, and shrinks when they find messages.
func TestExchange(t *testing.T) {
	x := exchange{idle: notSoon, maxPauses: 4}
	waits := func(found int) int {
		x.found = found
		x.wait()
		return x.pauses
	}
	assert.Zero(t, waits(notSoon), "the first one came late")
	assert.Zero(t, waits(0), "nothing is put off where messages are there already")
	for i, found := range []int{1, 5, soonPolls, 3, 7} {
		assert.Equal(t, min(i+1, 4), waits(found))
	}
	var lulls []int
	for range 2*minHits + 1 {
		lulls = append(lulls, waits(0))
	}
	assert.Equal(t, []int{4, 3, 3, 2, 2}, lulls)
	assert.Equal(t, 3, waits(1), "that was too early")
	assert.Zero(t, waits(notSoon))
}

// TestExchange_IdleCounts: idle after single messages, several messages, and late messages.
func TestExchange_IdleCounts(t *testing.T) {
	w := openTwo(t, Config{})
	got := 0
	assert.NoError(t, w.b.iface.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { got++; return false })))
	assert.NoError(t, w.ab.AMShort(1, 0, nil))
	w.until(func() bool { return got == 1 })
	x := &w.b.iface.exchange
	x.idle, x.pauses = notSoon, 0
	deliver := func(messages, polls int) {
		for range polls {
			w.b.iface.Progress()
		}
		for range messages {
			assert.NoError(t, w.ab.AMShort(1, 0, nil))
		}
		assert.Equal(t, messages, w.b.iface.Progress())
	}
	deliver(1, 0)
	assert.Equal(t, notSoon, x.found)
	deliver(1, 0)
	assert.Zero(t, x.found)
	deliver(1, 3)
	assert.Equal(t, 3, x.found)
	deliver(1, 2)
	assert.Equal(t, min(1, x.maxPauses), x.pauses, "three were empty before the message of before")
	deliver(2, 0)
	assert.Equal(t, notSoon, x.idle, "two at once are no exchange")
	pauses := x.pauses
	deliver(2, 1)
	assert.Equal(t, pauses, x.pauses, "nothing was put off")
}
