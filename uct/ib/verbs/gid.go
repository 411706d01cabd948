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

// gidPreference is the order of uct_ib_device_select_gid in UCX: routable before not routable, IPv4 before IPv6.
var gidPreference = [...]struct {
	typ  GIDType
	ipv4 bool
}{
	{GIDRoCEv2, true},
	{GIDRoCEv2, false},
	{GIDRoCEv1, true},
	{GIDRoCEv1, false},
}

// ChooseGID returns the entry of a RoCE port that UCX would send from: the first of RoCE v2 with an IPv4 address, else
// of RoCE v2, else of RoCE v1 with an IPv4 address, else of RoCE v1. ok is false if there is none.
func ChooseGID(list []GIDEntry) (e GIDEntry, ok bool) {
	for _, want := range gidPreference {
		for _, e := range list {
			if e.Type == want.typ && e.GID.IPv4() == want.ipv4 {
				return e, true
			}
		}
	}
	return GIDEntry{}, false
}
