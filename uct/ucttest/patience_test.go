package ucttest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// rounds returns the number of rounds of n events and 1 ms each after which a wait fails.
func (w *patience) rounds(n int) (rounds int) {
	for rounds = 1; !w.spent(n); rounds++ {
		if rounds%1000 == 0 {
			time.Sleep(time.Second)
		}
	}
	return rounds
}

// TestPatience checks that a wait fails after its budget of rounds, but before the first failed check not before
// patienceTime.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 1 << 10
		w := (&Harness{Budget: budget}).patience(1)
		assert.Equal(t, budget, w.rounds(0))
		w = (&Harness{Budget: budget}).patience(timerBudget)
		assert.Equal(t, budget*timerBudget, w.rounds(0))
		assert.Equal(t, budget*timerBudget*busyBudget, w.rounds(1), "in each something happens")

		w = (&Harness{}).patience(1)
		w.budget = budget
		before := time.Now()
		w.rounds(0)
		assert.GreaterOrEqual(t, time.Since(before), patienceTime)

		w = (&Harness{shortWaits: true}).patience(1)
		assert.Equal(t, defaultBudget, w.rounds(0))
	})
}

// TestSession_ShortWaitsAfterAFailure checks that waits after a failed check have no minimum time.
func TestSession_ShortWaitsAfterAFailure(t *testing.T) {
	s := session{h: &Harness{}}
	assert.Equal(t, patienceTime, s.h.patience(1).least)
	v := s.run(&check{name: "none"}) // fails: the harness has no OpenMD
	assert.True(t, v.Failed)
	assert.Zero(t, s.h.patience(1).least)
	assert.EqualValues(t, shortEvent.Milliseconds(), s.h.eventTimeout())
}
