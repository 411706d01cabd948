//go:build !amd64 && !arm64

package tick

// Now returns the counter. Differences are meaningful, also between cores.
func Now() uint64 { return monotonic() }

func source() string { return "monotonic" }
