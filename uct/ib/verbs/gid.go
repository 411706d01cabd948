package verbs

import "fmt"

// GID is a port address: on RoCE an IPv6 address, or IPv4 mapped.
type GID [16]byte

// String formats the GID in eight groups of four digits.
func (g GID) String() string {
	return fmt.Sprintf("%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x",
		g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15])
}

// IsZero reports whether no address is set.
func (g GID) IsZero() bool { return g == GID{} }
