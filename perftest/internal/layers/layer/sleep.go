package layer

import "time"

// Sleeper is implemented by a Conn that can sleep until an event.
type Sleeper interface {
	// Sleep sleeps until Progress may have work or the descriptor other is readable, and at most LookTime. It reports
	// whether other is readable; a negative descriptor is ignored. Sleep makes no progress. If there is work already,
	// it returns at once.
	Sleep(other int) (readable bool, err error)
}

// LookTime is the maximum time of a sleep, so that the end of a context is detected.
const LookTime = 100 * time.Millisecond
