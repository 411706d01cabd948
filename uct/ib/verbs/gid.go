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

// GIDType is the protocol that an entry of a GID table is for, by enum ib_gid_type of the kernel.
type GIDType uint8

// Types of GIDs.
const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
	GIDUnknown    GIDType = 3
)

// String returns "InfiniBand", "RoCE v1", "RoCE v2" or "unknown".
func (t GIDType) String() string {
	if t >= GIDUnknown {
		return "unknown"
	}
	return [...]string{"InfiniBand", "RoCE v1", "RoCE v2"}[t]
}

// GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	GID   GID
	Index uint8
	Type  GIDType
}

// IPv4 reports whether the GID is an IPv4 address, mapped as ::ffff:a.b.c.d.
func (g GID) IPv4() bool { return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff} }
