package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"sync"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/uct"
)

// deviceAddr is the address of a network device. It determines reachability.
type deviceAddr struct {
	loopback bool
	host     uint64     // hash that identifies the host and the network namespace
	v4, v6   netip.Addr // the zero Addr if there is none
}

// A packed device address is a byte with version and flags, the host, and the IP addresses that the
// flags declare. The default loopback addresses are not packed.
const (
	deviceVersion = 2
	minDeviceLen  = 9 // length without IP addresses

	offFlags = 0 // u8: version in the high half
	offHost  = 1 // u64
)

// Flags of a device address.
const (
	flagLoopback = 1 << iota // a loopback device; without flagOther its addresses are defaultV4 and defaultV6
	flagV4
	flagV6
	flagOther
)

var defaultV4, defaultV6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()

func (a *deviceAddr) append(b []byte) []byte {
	flags := byte(deviceVersion << 4)
	if a.v4.IsValid() {
		flags |= flagV4
	}
	if a.v6.IsValid() {
		flags |= flagV6
	}
	byDefault := a.loopback && (!a.v4.IsValid() || a.v4 == defaultV4) && (!a.v6.IsValid() || a.v6 == defaultV6)
	if a.loopback {
		flags |= flagLoopback
		if !byDefault {
			flags |= flagOther
		}
	}
	b = binary.LittleEndian.AppendUint64(append(b, flags), a.host)
	if byDefault {
		return b
	}
	return append(append(b, a.v4.AsSlice()...), a.v6.AsSlice()...)
}

// parseDeviceAddr decodes an address that may come from an untrusted peer.
func parseDeviceAddr(b []byte) (a deviceAddr, err error) {
	if len(b) < minDeviceLen || b[offFlags]>>4 != deviceVersion {
		return a, fmt.Errorf("%w: no tcp device address", uct.ErrInvalidAddr)
	}
	flags, rest := b[offFlags]&15, b[minDeviceLen:]
	a.loopback = flags&flagLoopback != 0
	a.host = binary.LittleEndian.Uint64(b[offHost:])
	byDefault := flags&(flagLoopback|flagOther) == flagLoopback
	bad := flags&(flagV4|flagV6) == 0 || flags&(flagLoopback|flagOther) == flagOther
	if flags&flagV4 != 0 {
		a.v4, rest = parseIP(rest, byDefault, defaultV4)
		bad = bad || !a.v4.IsValid()
	}
	if flags&flagV6 != 0 {
		a.v6, rest = parseIP(rest, byDefault, defaultV6)
		bad = bad || !a.v6.IsValid()
	}
	if bad || len(rest) > 0 {
		return a, fmt.Errorf("%w: tcp device address of %d bytes with flags %#x", uct.ErrInvalidAddr, len(b), flags)
	}
	for _, ip := range []netip.Addr{a.v4, a.v6} {
		if ip.IsValid() && (ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6()) {
			return a, fmt.Errorf("%w: tcp device address with %v", uct.ErrInvalidAddr, ip)
		}
	}
	return a, nil
}

// parseIP decodes an address of the family of like from the start of b; like itself if byDefault is
// set. It returns an invalid address if b is too short.
func parseIP(b []byte, byDefault bool, like netip.Addr) (netip.Addr, []byte) {
	n := like.BitLen() / 8
	switch {
	case byDefault:
		return like, b
	case len(b) < n:
		return netip.Addr{}, b
	}
	ip, _ := netip.AddrFromSlice(b[:n])
	return ip, b[n:]
}

// ifaceAddr is the address of an iface on its device.
type ifaceAddr struct {
	port4, port6 uint16 // own listening ports; 0 if the iface does not listen
	key          keypair.PublicKey
	seg          uint32         // maximum length of an active message without its header
	tls          bool           // connections use TLS
	token        bool           // peers must have a token
	listener     netip.AddrPort // a listener of the upper layer that also accepts connections for the iface; the zero AddrPort if there is none
	reached      bool           // the receiver of the address is connected to that listener
}

// Offsets in a packed iface address.
const (
	addrVersion = 3

	offIfaceVer   = 0 // u8
	offIfaceFlags = 1 // u8
	offPort4      = 2
	offPort6      = 4
	offIfaceKey   = 6
	offIfaceSeg   = offIfaceKey + keypair.Len
	ifaceLen      = offIfaceSeg + 4 // optional after that: IP address and port of the listener
)

// Flags of an iface address: requirements for connections to it.
const (
	flagTLS = 1 << iota
	flagToken
	flagListener
	flagReached
	flagsEnd
)

func (a *ifaceAddr) append(b []byte) []byte {
	flags := byte(0)
	if a.tls {
		flags |= flagTLS
	}
	if a.token {
		flags |= flagToken
	}
	if a.listener.IsValid() {
		flags |= flagListener
	}
	if a.reached {
		flags |= flagReached
	}
	b = append(b, addrVersion, flags)
	b = binary.LittleEndian.AppendUint16(b, a.port4)
	b = binary.LittleEndian.AppendUint16(b, a.port6)
	b = append(b, a.key[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.seg)
	if a.listener.IsValid() {
		b = append(b, a.listener.Addr().AsSlice()...)
		b = binary.LittleEndian.AppendUint16(b, a.listener.Port())
	}
	return b
}

// parseIfaceAddr decodes an address that may come from an untrusted peer.
func parseIfaceAddr(b []byte) (a ifaceAddr, err error) {
	if len(b) < ifaceLen || b[offIfaceVer] != addrVersion || b[offIfaceFlags] >= flagsEnd {
		return a, fmt.Errorf("%w: no tcp iface address", uct.ErrInvalidAddr)
	}
	flags := b[offIfaceFlags]
	a = ifaceAddr{
		port4: binary.LittleEndian.Uint16(b[offPort4:]),
		port6: binary.LittleEndian.Uint16(b[offPort6:]),
		key:   keypair.PublicKey(b[offIfaceKey:]),
		seg:   binary.LittleEndian.Uint32(b[offIfaceSeg:]),
		tls:   flags&flagTLS != 0,
		token: flags&flagToken != 0,

		reached: flags&flagReached != 0,
	}
	if a.listener, err = parseListener(b[ifaceLen:]); err != nil {
		return a, err
	}
	there := a.listener.IsValid()
	if a.key.ID() == 0 || a.port4|a.port6 == 0 && !there || there != (flags&flagListener != 0) || a.reached && !there {
		return a, fmt.Errorf("%w: tcp iface address without id or port", uct.ErrInvalidAddr)
	}
	return a, nil
}

// parseListener decodes the address of a listener, if there is one.
func parseListener(b []byte) (at netip.AddrPort, err error) {
	if len(b) == 0 {
		return at, nil
	}
	const portLen = 2
	n := max(len(b)-portLen, 0)
	ip, ok := netip.AddrFromSlice(b[:n])
	if !ok || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6() {
		return at, fmt.Errorf("%w: tcp iface address with a listener at %x", uct.ErrInvalidAddr, b)
	}
	at = netip.AddrPortFrom(ip, binary.LittleEndian.Uint16(b[n:]))
	if at.Port() == 0 {
		return at, fmt.Errorf("%w: tcp iface address with a listener at %v", uct.ErrInvalidAddr, at)
	}
	return at, nil
}

// at returns an address of the iface for error texts.
func (a *ifaceAddr) at(d *deviceAddr) netip.AddrPort {
	switch {
	case a.reached:
		return a.listener
	case d.v4.IsValid() && a.port4 != 0:
		return netip.AddrPortFrom(d.v4, a.port4)
	case a.port6 == 0:
		return a.listener
	}
	return netip.AddrPortFrom(d.v6, a.port6)
}

// hostID identifies the loopback device of this process: it is a hash of the kernel's boot id and
// the inode of the network namespace.
var hostID = sync.OnceValue(func() uint64 {
	h := fnv.New64a()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/net")
	h.Write(boot)
	h.Write([]byte(ns))
	return h.Sum64()
})
