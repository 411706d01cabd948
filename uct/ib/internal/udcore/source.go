package udcore

import "github.com/gucx/gucx/uct/ib/verbs"

// sent reports whether the peer has sent a datagram: its QP and its port must match, because
// devices use the same QPNs. The port is in the GRH, which a RoCE port writes before each datagram.
// On InfiniBand there is no GRH within a subnet.
func (p *peer) sent(data []byte, qpn uint32) bool {
	return p.key.qpn == qpn && (!p.key.dev.Ethernet || source(data) == p.key.dev.GID)
}

// source returns the GID in the area of the GRH: of the header itself, which is also an IPv6
// header, or the mapped address of an IPv4 header in its last 20 bytes (RoCEv2 annex A17, 4.5.2).
// It is not valid if the device has not written the area.
func source(data []byte) (gid verbs.GID) {
	const (
		version = 4  // bits to shift
		ipv6    = 6  // also the version of a GRH
		gidAt   = 8  // in both
		ipv4At  = 20 // offset of an IPv4 header
		addrAt  = ipv4At + 12
	)
	if data[0]>>version == ipv6 {
		return verbs.GID(data[gidAt : gidAt+len(gid)])
	}
	gid[10], gid[11] = 0xff, 0xff
	copy(gid[12:], data[addrAt:addrAt+4])
	return gid
}
