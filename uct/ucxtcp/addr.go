package ucxtcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/gucx/gucx/uct"
)

// The formats of addresses are those of UCX's tcp transport. A device address is flags (u8), family
// (u8), and the IP address; a loopback device has the identity of the host (u64) and the inode of
// the network namespace instead of an IP address. An iface address is the port, big-endian. An EP
// address is the port and a key (u64).

const (
	ifaceAddrLen = 2
	epAddrLen    = 10
	epAddrOffKey = 2

	devFlagLoopback = 1
	devOffFamily    = 1
	devOffIP        = 2
	devOffHost      = 2  // u64
	devOffNS        = 10 // u64, or u32
	devLen4         = devOffIP + 4
	devLen6         = devOffIP + 16
	devLenWide      = devOffNS + 8
	devLenNarrow    = devOffNS + 4
)

// hostFlag in the host identity means that the network namespace is not the first one.
const hostFlag = 1 << 63

// firstNamespace is the inode by which UCX identifies the first network namespace
// (UCS_PROCESS_NS_NET_DFLT in ucs/sys/sys.c). On kernels with another inode for that namespace, the
// flag is set there too.
const firstNamespace = 0xF0000080

// host is the identity of a host and network namespace. Peers can use loopback only if theirs are
// equal.
type host struct {
	id uint64
	ns uint64
}

// thisHost reads the identity of the host and network namespace.
func thisHost() (host, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return host{}, err
	}
	id, err := bootID(strings.TrimSpace(string(text)))
	if err != nil {
		return host{}, err
	}
	link, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return host{}, err
	}
	ns, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "net:["), "]"), 10, 64)
	if err != nil {
		return host{}, err
	}
	if id &^= hostFlag; ns != firstNamespace {
		id |= hostFlag
	}
	return host{id: id, ns: ns}, nil
}

// bootID returns the kernel's boot id, with its two halves combined by exclusive or as in UCX. The
// groups of the text are numbers. In the first half the first group is the lowest one; in the
// second half the bytes of the last group follow the fourth group.
func bootID(text string) (uint64, error) {
	hex := strings.Split(text, "-")
	if len(hex) != 5 || len(hex[4]) != 12 {
		return 0, fmt.Errorf("%w: boot id %.40q", uct.ErrInvalidParam, text)
	}
	var v [5]uint64
	for i := range v {
		var err error
		if v[i], err = strconv.ParseUint(hex[i], 16, 64); err != nil {
			return 0, err
		}
	}
	var last [8]byte
	binary.BigEndian.PutUint64(last[:], v[4]<<16)
	low := v[0] | v[1]<<32 | v[2]<<48
	high := v[3] | binary.LittleEndian.Uint64(last[:])<<16
	return low ^ high, nil
}

// deviceAddr is a decoded device address.
type deviceAddr struct {
	loopback bool
	ip       netip.Addr // 127.0.0.1 or ::1 for a loopback device
	host     host
}

func (a *deviceAddr) append(b []byte, wide bool) []byte {
	family, flags := byte(familyIP4), byte(0)
	if a.ip.Is6() {
		family = familyIP6
	}
	if !a.loopback {
		b = append(b, flags, family)
		return append(b, a.ip.AsSlice()...)
	}
	b = append(b, devFlagLoopback, family)
	b = binary.LittleEndian.AppendUint64(b, a.host.id)
	if wide {
		return binary.LittleEndian.AppendUint64(b, a.host.ns)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(a.host.ns))
}

var errAddr = errors.New("not the address of a tcp device")

// parseDeviceAddr decodes bytes of a peer. ErrInvalidAddr.
func parseDeviceAddr(b []byte) (a deviceAddr, err error) {
	bad := fmt.Errorf("%w: %w", uct.ErrInvalidAddr, errAddr)
	if len(b) < devLen4 || b[0]&^devFlagLoopback != 0 {
		return a, bad
	}
	family := b[devOffFamily]
	if family != familyIP4 && family != familyIP6 {
		return a, bad
	}
	if b[0] == devFlagLoopback {
		a.loopback, a.ip = true, netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if family == familyIP6 {
			a.ip = netip.IPv6Loopback()
		}
		switch len(b) {
		case devLenWide:
			a.host.ns = binary.LittleEndian.Uint64(b[devOffNS:])
		case devLenNarrow:
			a.host.ns = uint64(binary.LittleEndian.Uint32(b[devOffNS:]))
		default:
			return a, bad
		}
		a.host.id = binary.LittleEndian.Uint64(b[devOffHost:])
		return a, nil
	}
	switch {
	case family == familyIP4 && len(b) == devLen4:
		a.ip = netip.AddrFrom4([4]byte(b[devOffIP:]))
	case family == familyIP6 && len(b) == devLen6:
		a.ip = netip.AddrFrom16([16]byte(b[devOffIP:]))
	default:
		return a, bad
	}
	return a, nil
}

// parseIfaceAddr decodes the port of a peer. ErrInvalidAddr.
func parseIfaceAddr(b []byte) (port uint16, err error) {
	if len(b) == ifaceAddrLen {
		port = binary.BigEndian.Uint16(b)
	}
	if port == 0 {
		return 0, fmt.Errorf("%w: not the address of a tcp iface", uct.ErrInvalidAddr)
	}
	return port, nil
}

// ParseAddr returns the address at which the iface with these addresses listens. ErrInvalidAddr.
func ParseAddr(device, iface []byte) (netip.AddrPort, error) {
	d, err := parseDeviceAddr(device)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := parseIfaceAddr(iface)
	return netip.AddrPortFrom(d.ip, port), err
}

// parseEPAddr decodes the port and the key of the EP of a peer. ErrInvalidAddr.
func parseEPAddr(b []byte) (port uint16, key uint64, err error) {
	if len(b) == epAddrLen {
		port, key = binary.BigEndian.Uint16(b), binary.LittleEndian.Uint64(b[epAddrOffKey:])
	}
	if port == 0 || key == 0 {
		return 0, 0, fmt.Errorf("%w: not the address of a tcp endpoint", uct.ErrInvalidAddr)
	}
	return port, key, nil
}
