package testenv

import "time"

// Watchdog is the time after which a test considers a wait for another goroutine or process a hang. It is no limit of
// what is tested: an emulated or loaded machine may take a hundred times as long as an idle one, and passes. It is
// shorter than the time limit of go test, which would end the other tests too.
const Watchdog = 3 * time.Minute
