package spin

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
)

// Grace returns although a thread holds the section all the time, as the thread reports quiescent states.
func TestSection_GraceUnderLoad(t *testing.T) {
	var s Section
	s.Lock() // and never released
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Grace()
	}()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		s.Quiescent()
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	s.Unlock()
	s.Grace()
}

// TestSection_GraceWaits: Grace does not return while the holder of the section may have a pointer. It returns
// when the holder reports a quiescent state, and when it unlocks.
func TestSection_GraceWaits(t *testing.T) {
	for name, release := range map[string]func(s *Section){
		"quiescent": (*Section).Quiescent,
		"unlocked":  func(s *Section) { s.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			var s Section
			s.Lock()
			testenv.Waits(t, s.Grace, func() { release(&s) })
		})
	}
}
