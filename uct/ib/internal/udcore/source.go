package udcore

import "github.com/gucx/gucx/uct/ib/verbs"

// sent reports whether a datagram is from the peer: from its QP, and from its port, as
// devices number their QPs alike. The port is in the GRH, which a RoCE port puts before
// each datagram; on InfiniBand there is none within a subnet.
func (p *peer) sent(data []byte, qpn uint32) bool {
	return p.key.qpn == qpn && (!p.key.dev.Ethernet || source(data) == p.key.dev.GID)
}

// source is the GID in the area of the GRH: the header itself, which is one of IPv6 too,
// or an IPv4 header in its last 20 bytes (RoCEv2 annex A17, 4.5.2), whose address is
// mapped. It is of no use where the area was not filled.
func source(data []byte) (gid verbs.GID) {
	const (
		version = 4  // shift
		ipv6    = 6  // and the GRH
		gidAt   = 8  // in either
		ipv4At  = 20 // of an IPv4 header
		addrAt  = ipv4At + 12
	)
	if data[0]>>version == ipv6 {
		return verbs.GID(data[gidAt : gidAt+len(gid)])
	}
	gid[10], gid[11] = 0xff, 0xff
	copy(gid[12:], data[addrAt:addrAt+4])
	return gid
}
