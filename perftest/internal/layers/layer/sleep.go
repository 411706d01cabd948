package layer

import "time"

// Sleeper is implemented by a Conn that can sleep until something happens at its end.
type Sleeper interface {
	// Sleep sleeps until Progress may have something to do or the descriptor other is readable, and at most LookTime. It
	// reports whether other is readable; a negative one is ignored. Sleep makes no progress. It does not sleep if there is
	// something to do already.
	Sleep(other int) (readable bool, err error)
}

// LookTime bounds a sleep, so that the end of a context is seen.
const LookTime = 100 * time.Millisecond
