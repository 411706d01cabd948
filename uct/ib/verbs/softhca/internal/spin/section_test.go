package spin

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
)

// A thread that executes work requests or packets all the time holds nobody up.
func TestSection_GraceUnderLoad(t *testing.T) {
	var s Section
	s.Lock() // and never free
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

// TestSection_GraceWaits: grace does not return while the holder of the section may have a
// pointer. It returns when the holder says that it has none, and when it unlocks.
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
