package tick

// cntvct reads, after all earlier instructions, the virtual counter, which runs at a constant rate on every
// implementation (Arm ARM, D12.1.2).
//
//go:noescape
func cntvct() uint64

// Now returns the counter when all earlier instructions have their results. Differences are meaningful, also
// between cores.
func Now() uint64 { return cntvct() }

func source() string { return "cntvct" }
