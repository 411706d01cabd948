package ucttest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// rounds is how many rounds that do n things each end a wait, of which each takes a millisecond.
func (w *patience) rounds(n int) (rounds int) {
	for rounds = 1; !w.spent(n); rounds++ {
		if rounds%1000 == 0 {
			time.Sleep(time.Second)
		}
	}
	return rounds
}

// TestPatience: a wait ends by its rounds, and before the first failure not before some time has
// passed.
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

// TestSession_ShortWaitsAfterAFailure: the checks behind one that fails wait by rounds only.
func TestSession_ShortWaitsAfterAFailure(t *testing.T) {
	s := session{h: &Harness{}}
	assert.Equal(t, patienceTime, s.h.patience(1).least)
	v := s.run(&check{name: "none"}) // it opens nothing: there is no OpenMD
	assert.True(t, v.Failed)
	assert.Zero(t, s.h.patience(1).least)
	assert.EqualValues(t, shortEvent.Milliseconds(), s.h.eventTimeout())
}
