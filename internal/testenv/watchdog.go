package testenv

import "time"

// Watchdog is how long a test waits for another goroutine or process before it calls
// the wait a hang. It is no bound of what is tested: a machine that is emulated or runs
// other programs besides takes a hundred times as long as an idle one, and passes. It is
// shorter than the time limit of go test, which would take the other tests along.
const Watchdog = 3 * time.Minute
