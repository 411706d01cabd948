package tick

// cntvct reads the virtual counter, which runs at a constant rate on every
// implementation (Arm ARM, D12.1.2).
//
//go:noescape
func cntvct() uint64

// Now returns the counter. Differences are meaningful, also between cores.
func Now() uint64 { return cntvct() }

func source() string { return "cntvct" }
