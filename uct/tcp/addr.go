package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"sync"

	"github.com/gucx/gucx/uct"
)

// deviceAddr is the address of a network device: what decides reachability.
type deviceAddr struct {
	loopback bool
	host     uint64     // tells hosts, and network namespaces of one, apart
	v4, v6   netip.Addr // the zero Addr where there is none
}

// Offsets in a packed device address.
const (
	addrVersion = 1

	offAddrVer   = 0 // u8
	offAddrFlags = 1 // u8
	offHost      = 2 // u64
	offV4        = 10
	offV6        = 14
	deviceLen    = 30
)

// Flags of a device address.
const (
	flagLoopback = 1 << iota
	flagV4
	flagV6
	flagsKnown = flagLoopback | flagV4 | flagV6
)

func (a *deviceAddr) append(b []byte) []byte {
	var p [deviceLen]byte
	p[offAddrVer] = addrVersion
	if a.loopback {
		p[offAddrFlags] |= flagLoopback
	}
	binary.LittleEndian.PutUint64(p[offHost:], a.host)
	if a.v4.IsValid() {
		p[offAddrFlags] |= flagV4
		ip := a.v4.As4()
		copy(p[offV4:], ip[:])
	}
	if a.v6.IsValid() {
		p[offAddrFlags] |= flagV6
		ip := a.v6.As16()
		copy(p[offV6:], ip[:])
	}
	return append(b, p[:]...)
}

// parseDeviceAddr decodes an address that may come from a stranger.
func parseDeviceAddr(b []byte) (a deviceAddr, err error) {
	if len(b) != deviceLen || b[offAddrVer] != addrVersion {
		return a, fmt.Errorf("%w: no tcp device address", uct.ErrInvalidAddr)
	}
	flags := b[offAddrFlags]
	if flags&^flagsKnown != 0 || flags&(flagV4|flagV6) == 0 {
		return a, fmt.Errorf("%w: tcp device address with flags %#x", uct.ErrInvalidAddr, flags)
	}
	a.loopback = flags&flagLoopback != 0
	a.host = binary.LittleEndian.Uint64(b[offHost:])
	if flags&flagV4 != 0 {
		a.v4 = netip.AddrFrom4([4]byte(b[offV4:offV6]))
	}
	if flags&flagV6 != 0 {
		a.v6 = netip.AddrFrom16([16]byte(b[offV6:deviceLen]))
	}
	for _, ip := range []netip.Addr{a.v4, a.v6} {
		if ip.IsValid() && (ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6()) {
			return a, fmt.Errorf("%w: tcp device address with %v", uct.ErrInvalidAddr, ip)
		}
	}
	return a, nil
}

// ifaceAddr is the address of an iface on its device.
type ifaceAddr struct {
	port4, port6 uint16 // 0 where it does not listen
	id           uint64
	seg          uint32 // longest active message that it takes
	tls          bool   // connections are made through TLS
}

// Offsets in a packed iface address.
const (
	offIfaceVer = 0 // u8
	offIfaceTLS = 1 // u8: 0, or 1 if tls
	offPort4    = 2
	offPort6    = 4
	offIfaceID  = 6
	offIfaceSeg = 14
	ifaceLen    = 18
)

func (a *ifaceAddr) append(b []byte) []byte {
	secure := byte(0)
	if a.tls {
		secure = 1
	}
	b = append(b, addrVersion, secure)
	b = binary.LittleEndian.AppendUint16(b, a.port4)
	b = binary.LittleEndian.AppendUint16(b, a.port6)
	b = binary.LittleEndian.AppendUint64(b, a.id)
	return binary.LittleEndian.AppendUint32(b, a.seg)
}

// parseIfaceAddr decodes an address that may come from a stranger.
func parseIfaceAddr(b []byte) (a ifaceAddr, err error) {
	if len(b) != ifaceLen || b[offIfaceVer] != addrVersion || b[offIfaceTLS] > 1 {
		return a, fmt.Errorf("%w: no tcp iface address", uct.ErrInvalidAddr)
	}
	a = ifaceAddr{
		port4: binary.LittleEndian.Uint16(b[offPort4:]),
		port6: binary.LittleEndian.Uint16(b[offPort6:]),
		id:    binary.LittleEndian.Uint64(b[offIfaceID:]),
		seg:   binary.LittleEndian.Uint32(b[offIfaceSeg:]),
		tls:   b[offIfaceTLS] == 1,
	}
	if a.id == 0 || a.port4|a.port6 == 0 {
		return a, fmt.Errorf("%w: tcp iface address without id or port", uct.ErrInvalidAddr)
	}
	return a, nil
}

// hostID tells whether two processes see the same loopback device: it comes from
// the kernel's boot id and the number of the network namespace.
var hostID = sync.OnceValue(func() uint64 {
	h := fnv.New64a()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/net")
	h.Write(boot)
	h.Write([]byte(ns))
	return h.Sum64()
})
