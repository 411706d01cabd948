package ucp

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
)

// TestSharedWorker_StaleEnd: a request that has completed before its goroutine was woken may be that of another
// operation by then, whose goroutine continues to sleep.
func TestSharedWorker_StaleEnd(t *testing.T) {
	p, _ := fakePair(t, faketp.LikeRC(), faketp.LikeUD())
	w := p.w[0]
	s := w.Share()
	s.driven.Store(true)
	r := w.newRequest(nil, &tagRecvStage)
	sleeper := &sharedWaiter{wake: make(chan struct{}, 1)}
	s.byRequest[r], s.blocked = sleeper, 1
	r.flags |= reqWakes
	w.completed.woken = append(w.completed.woken, r) // of the previous operation
	s.wakeWaiters()
	assert.Empty(t, sleeper.wake)
	r.queueCompletion()
	s.wakeWaiters()
	assert.Len(t, sleeper.wake, 1)
	assert.Zero(t, s.blocked)
	w.recycle(r)
}

// TestVacancy_Timer: the timer ends a vacancy of which it has seen the beginning, and looks again after one that has begun since, at
// first soon, then less often.
func TestVacancy_Timer(t *testing.T) {
	s := newPair(t, faketp.Set("like rc", faketp.LikeRC()), Config{}).w[0].Share()
	s.mu.Lock()
	defer s.mu.Unlock()
	look := func() {
		s.mu.Unlock()
		s.endVacancy()
		s.mu.Lock()
	}
	v := &s.vacancy
	v.timer = time.AfterFunc(time.Hour, func() {}) // look is called instead
	v.quick = true
	s.beginVacancy()
	assert.True(t, v.open && v.set)
	assert.Equal(t, vacancyMin, v.limit)
	for _, limit := range []time.Duration{2 * vacancyMin, vacancyMax, vacancyMax} {
		v.fill()
		s.beginVacancy()
		look()
		assert.True(t, v.open && v.set, "others have left since")
		assert.Equal(t, limit, v.limit)
	}
	v.quick = true
	for _, skip := range []uint{2 * skipMin, 4 * skipMin} {
		look()
		assert.False(t, v.open, "no goroutine has called again")
		assert.False(t, v.set)
		assert.Equal(t, skip, v.skip)
		for range skip {
			assert.False(t, v.mayBegin())
		}
		assert.True(t, v.mayBegin())
		s.beginVacancy()
	}
	v.skipped = skipMax
	look()
	assert.EqualValues(t, skipMax, v.skip)
	s.beginVacancy()
	v.fill()
	assert.EqualValues(t, skipMin, v.skipped)
}

// TestSharedWorker_WithoutUsers: neither the timer of vacancies nor the goroutine of Inspect uses the worker if no goroutine is
// blocked and no function is queued. Its owner may have closed it.
func TestSharedWorker_WithoutUsers(t *testing.T) {
	p, fabric := fakePair(t, faketp.LikeSM())
	fabric.NeedsPush = true
	s := p.w[0].Share()
	s.Do(func(w *Worker) { assert.NoError(t, w.OpenFirst()) })
	s.Do(func(*Worker) { s.vacancy.open = true })
	pushes := fabric.Pushes.Load()
	assert.NotZero(t, pushes)
	s.endVacancy()
	assert.False(t, s.vacancy.open)
	assert.Equal(t, pushes, fabric.Pushes.Load())
	s.runInspections()
	assert.Equal(t, pushes, fabric.Pushes.Load())
	assert.NoError(t, s.Close())
	assert.Equal(t, pushes, fabric.Pushes.Load(), "the transports are closed")
}

// TestVacancy_Frequent: messages are frequent if they come within vacancyMax. The timer of the first vacancy of such messages is
// vacancyMax.
func TestVacancy_Frequent(t *testing.T) {
	s := newPair(t, faketp.Set("like rc", faketp.LikeRC()), Config{}).w[0].Share()
	s.mu.Lock()
	defer s.mu.Unlock()
	v, now := &s.vacancy, time.Now()
	assert.False(t, v.frequent(now))
	for _, frequent := range []bool{true, true, false, true} {
		now = now.Add(vacancyMax)
		if !frequent {
			now = now.Add(1)
		}
		assert.Equal(t, frequent, v.frequent(now))
	}
	v.timer = time.AfterFunc(time.Hour, func() {})
	s.beginVacancy()
	assert.Equal(t, vacancyMax, v.limit)
}

// TestSharedWorker_ConditionCompletes: if a condition completes the request of a blocked goroutine, that goroutine is woken.
func TestSharedWorker_ConditionCompletes(t *testing.T) {
	for name, use := range map[string]func(s *SharedWorker, cancel func() bool){
		"of a blocked goroutine": func(s *SharedWorker, cancel func() bool) {
			s.byCondition, s.blocked = []*sharedWaiter{{done: cancel}}, s.blocked+1
			s.wakeWaiters()
		},
		"of the goroutine that sleeps": func(s *SharedWorker, cancel func() bool) {
			s.condition = cancel
			s.setParked(true)
			s.wake()
		},
		"before that sleeps": func(s *SharedWorker, cancel func() bool) {
			s.w.engine.Spin.Fixed, s.w.engine.ParkLimit = 1, time.Millisecond
			for calls := 0; calls < 2; {
				_, err := s.pause(t.Context(), &engine.IdleTime{Polls: 1}, func() bool {
					calls++
					return calls == 2 && cancel() // no other call before the sleep
				})
				assert.NoError(t, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := fakePair(t, faketp.LikeSM())
			s := p.w[0].Share()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.driven.Store(true)
			r, err := s.w.TagRecv(make([]byte, 8), 1, math.MaxUint64, nil, nil)
			require.NoError(t, err)
			sleeper := &sharedWaiter{wake: make(chan struct{}, 1)}
			s.byRequest[r], s.blocked = sleeper, 1
			r.flags |= reqWakes
			use(s, func() bool { r.Cancel(); return false })
			assert.Len(t, sleeper.wake, 1)
			assert.ErrorIs(t, r.take(), ucs.ErrCanceled)
		})
	}
}
