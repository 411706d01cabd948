package cli

import "github.com/gucx/gucx/internal/handover"

// measureBeforePinning measures the costs of moving bytes between CPUs, which ucp uses to choose
// protocols. A process that is bound to one CPU cannot measure them, and would use assumed costs:
// the runtime reduces GOMAXPROCS when the affinity of the process changes.
func measureBeforePinning() { handover.Measure() }
