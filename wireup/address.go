package wireup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gucx/gucx/internal/cursor"
	"github.com/gucx/gucx/uct"
)

// Limits of an address. They bound what an untrusted peer can make the decoder allocate.
const (
	MaxResources = 64   // resources in an address
	MaxMDs       = 32   // memory domains in an address
	MaxAddrLen   = 8192 // bytes of a packed address
)

// Limits of names in bytes, those of uct.Resource and uct.Component.
const (
	maxTransportName = 10
	maxComponentName = 16
)

// keyLen is the length of a public key in bytes.
const keyLen = 32

// PublicKey is the X25519 public key of a worker. The worker proves with its private key that
// it has sent a handshake message; see package ucp.
type PublicKey [keyLen]byte

// UUID returns the first 8 bytes of the key. They identify the worker and are never all 0.
func (k *PublicKey) UUID() uint64 { return binary.LittleEndian.Uint64(k[:]) }

// Address is the address of a worker. It has everything that peers need to choose transports and to connect.
type Address struct {
	// Key is the public key of the worker. Its UUID is not 0.
	Key PublicKey
	// MDs are the memory domains that resources refer to by index.
	MDs []MD
	// Resources are the open transports. A resource has the same index at both sides.
	Resources []Resource
}

// UUID identifies the worker. It is random and never 0.
func (a *Address) UUID() uint64 { return a.Key.UUID() }

// MD is a memory domain in an address.
type MD struct {
	Component string // MDs of the same component can unpack keys of this MD
}

// Resource is one open transport in an address. All fields except Device are packed, so both sides compute scores from the
// same numbers.
type Resource struct {
	Transport string
	Device    string // for logs and errors of this side; not packed
	MD        uint8  // index into Address.MDs
	// AuxOnly marks a transport that was opened for handshakes only.
	AuxOnly bool

	Caps uct.Caps // a subset of wireCaps
	// Fetch64 and Domain describe the atomics on 8 bytes; both are 0 without CapAtomic64.
	Fetch64 uct.AtomicOps
	Domain  uct.AtomicDomain

	// RMA, AMO and AM are the costs of the classes; 0 for a class that is not in Caps.
	RMA, AMO, AM Cost
	Priority     int8
	AMBcopy      Size // largest bcopy active message; 0 without CapConnectIface

	DeviceAddr []byte // at most 254 bytes
	IfaceAddr  []byte // at most 254 bytes; nil without CapConnectIface
}

// NewResource describes an open iface. md is the index of its memory domain in Address.MDs.
func NewResource(attr *uct.IfaceAttr, md int) Resource {
	r := Resource{
		Transport: attr.Resource.Transport,
		Device:    attr.Resource.Device,
		MD:        uint8(md),
		Caps:      attr.Caps,
		Fetch64:   attr.Atomic.Fetch64,
		Domain:    attr.Atomic.Domain,
		RMA:       costOf(attr, rmaVariants...),
		AMO:       costOf(attr, amoVariants...),
		AM:        costOf(attr, amVariants...),
		Priority:  int8(max(math.MinInt8, min(math.MaxInt8, attr.Priority))),
		AMBcopy:   floor8(uint64(max(0, attr.AM.MaxBcopy))),
	}
	r.trim()
	return r
}

// trim clears the fields that are not packed for the capabilities of r.
func (r *Resource) trim() {
	r.Caps = capsOf(wireBits(r.Caps))
	if r.Caps&capsRMA == 0 {
		r.RMA = Cost{}
	}
	if r.Caps&uct.CapAtomic == 0 {
		r.AMO = Cost{}
	}
	r.AMO.Bandwidth = 0
	if r.Caps&uct.CapAM == 0 {
		r.AM = Cost{}
	}
	if r.Caps&uct.CapAtomic64 == 0 {
		r.Fetch64, r.Domain = 0, 0
	}
	if r.Caps&uct.CapConnectIface == 0 {
		r.AMBcopy, r.IfaceAddr = 0, nil
	}
}

const capsRMA = uct.CapPut | uct.CapGet

// check returns ErrInvalidParam, with the reason, if the address cannot be packed.
func (a *Address) check() error {
	if a.UUID() == 0 || len(a.MDs) > MaxMDs || len(a.Resources) > MaxResources {
		return fmt.Errorf("%w: address with uuid %#x, %d memory domains, %d resources",
			uct.ErrInvalidParam, a.UUID(), len(a.MDs), len(a.Resources))
	}
	for i := range a.MDs {
		if c := a.MDs[i].Component; c == "" || len(c) > maxComponentName || !printable(c) {
			return fmt.Errorf("%w: component name %q", uct.ErrInvalidParam, c)
		}
	}
	for i := range a.Resources {
		if !a.Resources[i].valid(len(a.MDs)) {
			return fmt.Errorf("%w: resource %q on %q", uct.ErrInvalidParam, a.Resources[i].Transport, a.Resources[i].Device)
		}
	}
	return nil
}

func (r *Resource) valid(mds int) bool {
	return r.Transport != "" && len(r.Transport) <= maxTransportName && printable(r.Transport) &&
		int(r.MD) < mds && r.Domain <= maxDomain && r.Fetch64 <= maxFetch &&
		len(r.DeviceAddr) < sameAddr && len(r.IfaceAddr) < sameAddr
}

// The packed form; docs/wire.md, "Worker address".
const (
	addrMagic   = 0x57 // 'W'
	addrVersion = 5
	addrHeader  = 2 + keyLen // magic, version, public key

	domainShift = 6
	maxFetch    = 1<<domainShift - 1
	maxDomain   = 1<<(8-domainShift) - 1

	// sameAddr, as the length of an iface address, means that it equals the device address.
	sameAddr = math.MaxUint8
)

// Names that have a number on the wire. Number 0 means that the name follows.
var (
	wireComponents = []string{1: "self", 2: "sm", 3: "tcp", 4: "ib"}
	wireTransports = []string{1: "self", 2: "sm", 3: "tcp", 4: "rc", 5: "ud", 6: "rc_mlx5", 7: "ud_mlx5"}
)

// wireCaps are the capabilities on which the choice of lanes depends, by their bit on the wire.
var wireCaps = [...]uct.Caps{
	0: uct.CapAMBcopy, 1: uct.CapAMZcopy,
	2: uct.CapPutBcopy, 3: uct.CapPutZcopy,
	4: uct.CapGetBcopy, 5: uct.CapGetZcopy,
	6: uct.CapAtomic32, 7: uct.CapAtomic64,
	8: uct.CapPending, 9: uct.CapConnectIface, 10: uct.CapConnectEP, 11: uct.CapLossy,
	14: uct.CapInterNode,
}

// Flags in the bits that wireCaps does not use.
const (
	bitAuxOnly  = 1 << 12
	bitPriority = 1 << 13 // the priority is packed; otherwise it is 0
)

func wireBits(caps uct.Caps) (bits uint16) {
	for i, c := range wireCaps {
		if c != 0 && caps.Has(c) {
			bits |= 1 << i
		}
	}
	return bits
}

func capsOf(bits uint16) (caps uct.Caps) {
	for i, c := range wireCaps {
		if bits&(1<<i) != 0 {
			caps |= c
		}
	}
	return caps
}

// device is a device address that one or more resources use.
type device struct {
	md   uint8
	addr []byte
}

// devices lists the devices, sorted by memory domain.
func (a *Address) devices() (devs []device) {
	for i := range a.Resources {
		if r := &a.Resources[i]; findDevice(devs, r) < 0 {
			devs = append(devs, device{r.MD, r.DeviceAddr})
		}
	}
	slices.SortStableFunc(devs, func(x, y device) int { return int(x.md) - int(y.md) })
	return devs
}

func findDevice(devs []device, r *Resource) int {
	return slices.IndexFunc(devs, func(d device) bool { return d.md == r.MD && bytes.Equal(d.addr, r.DeviceAddr) })
}

// Pack returns the packed address. ErrInvalidParam, with the reason, if
// a field is invalid; ErrTooLong if it would exceed MaxAddrLen.
func (a *Address) Pack() ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	b := []byte{addrMagic, addrVersion}
	b = append(b, a.Key[:]...)
	b = append(b, byte(len(a.MDs)))
	devs := a.devices()
	for i, rest := 0, devs; i < len(a.MDs); i++ {
		n := 0
		for n < len(rest) && int(rest[n].md) == i {
			n++
		}
		b = appendNamed(b, wireComponents, a.MDs[i].Component, n)
		for _, d := range rest[:n] {
			b = cursor.AppendShort(b, d.addr)
		}
		rest = rest[n:]
	}
	b = append(b, byte(len(a.Resources)))
	for i := range a.Resources {
		b = a.Resources[i].pack(b, devs)
	}
	if len(b) > MaxAddrLen {
		return nil, fmt.Errorf("worker address of %d bytes: %w", len(b), uct.ErrTooLong)
	}
	return b, nil
}

func (r *Resource) pack(b []byte, devs []device) []byte {
	b = appendNamed(b, wireTransports, r.Transport, findDevice(devs, r))
	flags := wireBits(r.Caps)
	if r.AuxOnly {
		flags |= bitAuxOnly
	}
	if r.Priority != 0 {
		flags |= bitPriority
	}
	b = binary.LittleEndian.AppendUint16(b, flags)
	if r.Priority != 0 {
		b = append(b, byte(r.Priority))
	}
	if r.Caps&capsRMA != 0 {
		b = append(b, byte(r.RMA.Overhead), byte(r.RMA.Latency), byte(r.RMA.Bandwidth))
	}
	if r.Caps&uct.CapAtomic != 0 {
		b = append(b, byte(r.AMO.Overhead), byte(r.AMO.Latency))
	}
	if r.Caps.Has(uct.CapAtomic64) {
		b = append(b, byte(r.Domain)<<domainShift|byte(r.Fetch64))
	}
	if r.Caps&uct.CapAM != 0 {
		b = append(b, byte(r.AM.Overhead), byte(r.AM.Latency), byte(r.AM.Bandwidth))
	}
	if !r.Caps.Has(uct.CapConnectIface) {
		return b
	}
	b = append(b, byte(r.AMBcopy))
	if len(r.IfaceAddr) > 0 && bytes.Equal(r.IfaceAddr, r.DeviceAddr) {
		return append(b, sameAddr)
	}
	return cursor.AppendShort(b, r.IfaceAddr)
}

// UnpackAddress checks and decodes a packed address, which may come from an untrusted
// peer. It ignores bytes after the last resource. The result does not refer to b.
// ErrInvalidAddr.
func UnpackAddress(b []byte) (*Address, error) {
	if len(b) < addrHeader || len(b) > MaxAddrLen {
		return nil, badAddr("length %d", len(b))
	}
	c := cursor.Cursor{B: b}
	if c.U8() != addrMagic {
		return nil, badAddr("not a worker address")
	}
	if v := c.U8(); v != addrVersion {
		return nil, badAddr("version %d, want %d", v, addrVersion)
	}
	a := &Address{}
	copy(a.Key[:], c.Take(keyLen))
	devs, err := a.unpackMDs(&c)
	if err != nil {
		return nil, err
	}
	n := int(c.U8())
	if n > MaxResources {
		return nil, badAddr("%d resources", n)
	}
	for range n {
		r := unpackResource(&c, devs)
		if c.Bad {
			return nil, badAddr("malformed resource %d", len(a.Resources))
		}
		a.Resources = append(a.Resources, r)
	}
	if err := a.check(); err != nil {
		return nil, badAddr("%v", err)
	}
	return a, nil
}

func (a *Address) unpackMDs(c *cursor.Cursor) (devs []device, err error) {
	n := int(c.U8())
	if n > MaxMDs {
		return nil, badAddr("%d memory domains", n)
	}
	for md := range n {
		name, count := readNamed(c, wireComponents, maxComponentName)
		for range count {
			devs = append(devs, device{uint8(md), c.Short()})
			if c.Bad || len(devs) > MaxResources {
				return nil, badAddr("%d devices", len(devs))
			}
		}
		a.MDs = append(a.MDs, MD{Component: name})
	}
	return devs, nil
}

func unpackResource(c *cursor.Cursor, devs []device) (r Resource) {
	name, dev := readNamed(c, wireTransports, maxTransportName)
	if dev >= len(devs) {
		c.Bad = true
		return r
	}
	r.Transport, r.MD, r.DeviceAddr = name, devs[dev].md, bytes.Clone(devs[dev].addr)
	flags := c.U16()
	r.Caps, r.AuxOnly = capsOf(flags), flags&bitAuxOnly != 0
	if flags&bitPriority != 0 {
		r.Priority = int8(c.U8())
	}
	if r.Caps&capsRMA != 0 {
		r.RMA = Cost{Time(c.U8()), Time(c.U8()), Rate(c.U8())}
	}
	if r.Caps&uct.CapAtomic != 0 {
		r.AMO = Cost{Overhead: Time(c.U8()), Latency: Time(c.U8())}
	}
	if r.Caps.Has(uct.CapAtomic64) {
		v := c.U8()
		r.Fetch64, r.Domain = uct.AtomicOps(v&maxFetch), uct.AtomicDomain(v>>domainShift)
	}
	if r.Caps&uct.CapAM != 0 {
		r.AM = Cost{Time(c.U8()), Time(c.U8()), Rate(c.U8())}
	}
	if !r.Caps.Has(uct.CapConnectIface) {
		return r
	}
	r.AMBcopy = Size(c.U8())
	if len(c.B) > 0 && c.B[0] == sameAddr {
		c.U8()
		r.IfaceAddr = bytes.Clone(r.DeviceAddr)
		return r
	}
	r.IfaceAddr = c.Short()
	return r
}

func badAddr(format string, args ...any) error {
	return fmt.Errorf("worker address: "+format+": %w", append(args, uct.ErrInvalidAddr)...)
}
