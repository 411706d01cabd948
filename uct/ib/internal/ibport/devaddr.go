package ibport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// DeviceAddrLen is the length of a packed device address in bytes.
const DeviceAddrLen = 20

// A packed device address, docs/wire.md "ib device address":
//
//	0  u8    version, 1
//	1  u8    link layer: 1 InfiniBand, 2 Ethernet
//	2  u16   LID, big endian; 0 on Ethernet
//	4  [16]  GID
const (
	devAddrVersion = 1
	devAddrLink    = 1
	devAddrLID     = 2
	devAddrGID     = 4

	linkInfiniBand = 1
	linkEthernet   = 2
)

// DeviceAddr is the address of a port. It determines reachability.
type DeviceAddr struct {
	Ethernet bool // RoCE
	LID      uint16
	GID      verbs.GID
}

// Append packs a.
func (a DeviceAddr) Append(b []byte) []byte {
	link := byte(linkInfiniBand)
	if a.Ethernet {
		link = linkEthernet
	}
	b = append(b, devAddrVersion, link)
	b = binary.BigEndian.AppendUint16(b, a.LID)
	return append(b, a.GID[:]...)
}

// ParseDeviceAddr checks and unpacks b, which may come from an untrusted peer. Errors
// wrap ErrInvalidAddr.
func ParseDeviceAddr(b []byte) (a DeviceAddr, err error) {
	if len(b) != DeviceAddrLen {
		return a, fmt.Errorf("%w: device address of %d bytes, want %d", uct.ErrInvalidAddr, len(b), DeviceAddrLen)
	}
	if b[0] != devAddrVersion {
		return a, fmt.Errorf("%w: device address version %d, want %d", uct.ErrInvalidAddr, b[0], devAddrVersion)
	}
	link := b[devAddrLink]
	a.Ethernet = link == linkEthernet
	a.LID = binary.BigEndian.Uint16(b[devAddrLID:])
	copy(a.GID[:], b[devAddrGID:])
	switch {
	case link != linkEthernet && link != linkInfiniBand:
		err = errors.New("unknown link layer")
	case a.Ethernet && a.LID != 0:
		err = errors.New("a LID on Ethernet")
	case !a.Ethernet && a.LID == 0:
		err = errors.New("no LID on InfiniBand")
	case a.GID == verbs.GID{}:
		err = errors.New("zero GID")
	case a.GID[0] == 0xff:
		err = errors.New("multicast GID")
	}
	if err != nil {
		return DeviceAddr{}, fmt.Errorf("%w: %w", uct.ErrInvalidAddr, err)
	}
	return a, nil
}

// v4Mapped is the prefix of the GID that RoCE v2 uses for an IPv4 address: ::ffff:a.b.c.d.
var v4Mapped = []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}

// linkLocal reports whether g is in fe80::/10 (RFC 4291, 2.5.6).
func linkLocal(g verbs.GID) bool { return g[0] == 0xfe && g[1]&0xc0 == 0x80 }

// reach returns the reason why a port with address a cannot reach peer; "" if it can. GIDs of one
// subnet have the same first 8 bytes. Routable RoCE addresses reach each other across subnets.
// Ports of a software HCA have link-local GIDs, in which the subnet identifies the fabric.
func (a DeviceAddr) reach(peer DeviceAddr) string {
	switch {
	case a.Ethernet != peer.Ethernet:
		return "different link layer"
	case !a.Ethernet || linkLocal(a.GID) || linkLocal(peer.GID):
		if !bytes.Equal(a.GID[:8], peer.GID[:8]) {
			return fmt.Sprintf("different subnet: %s from %s", peer.GID, a.GID)
		}
	case bytes.HasPrefix(a.GID[:], v4Mapped) != bytes.HasPrefix(peer.GID[:], v4Mapped):
		return "different address family"
	}
	return ""
}
