package wireup

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/gucx/gucx/uct"
)

// Limits of an address. They bound what a stranger can make the decoder allocate.
const (
	MaxResources     = 64   // resources in an address
	MaxMDs           = 32   // memory domains in an address
	MaxAddrLen       = 8192 // bytes of a packed address
	MaxTransportName = 10   // bytes, as uct.Resource has it
	MaxDeviceName    = 32   // bytes, as uct.Resource has it
	MaxComponentName = 16   // bytes, as uct.Component has it
)

// The packed form; docs/wire.md, "Worker address".
const (
	addrMagic   = 0x41575847 // "GXWA", little endian
	addrVersion = 1
	addrHeader  = 16 // magic, version, flags, part count, uuid

	partMD       = 1
	partResource = 2
	partHeader   = 3 // kind, length

	flagAuxOnly = 1 << 0
)

// Address is what one worker tells others about itself.
type Address struct {
	// UUID tells workers apart; random, never 0.
	UUID uint64
	// MDs are the memory domains that resources refer to by index.
	MDs []MD
	// Resources are the open transports, by index the same at both sides.
	Resources []Resource
}

// MD is a memory domain in an address.
type MD struct {
	Component string // keys of this MD are understood by MDs of the same component
}

// Resource is one open transport in an address. Times and rates are kept as they
// are packed, so that both sides compute with the same numbers.
type Resource struct {
	Transport string
	Device    string // for people only
	MD        uint8  // index into Address.MDs
	// AuxOnly marks a transport that was opened for handshakes only.
	AuxOnly bool

	Caps   uct.Caps
	Atomic uct.AtomicAttr

	Latency   uint32 // ns, one way
	Overhead  uint32 // ns of CPU to post one operation
	Bandwidth uint64 // bytes per second
	Priority  int16
	AMBcopy   uint32 // longest bcopy active message in bytes

	DeviceAddr []byte // at most 255 bytes
	IfaceAddr  []byte // at most 255 bytes; nil without CapConnectIface
}

// NewResource describes an open iface. Index md is its place in Address.MDs.
func NewResource(attr *uct.IfaceAttr, md int) Resource {
	return Resource{
		Transport: attr.Resource.Transport,
		Device:    attr.Resource.Device,
		MD:        uint8(md),
		Caps:      attr.Caps,
		Atomic:    attr.Atomic,
		Latency:   nanoseconds(attr.Perf.Latency + attr.Perf.LatencyPerEP),
		Overhead:  nanoseconds(attr.Perf.Overhead),
		Bandwidth: bytesPerSecond(attr.Perf),
		Priority:  int16(max(math.MinInt16, min(math.MaxInt16, attr.Priority))),
		AMBcopy:   uint32(max(0, min(math.MaxInt32, attr.AM.MaxBcopy))),
	}
}

func nanoseconds(d time.Duration) uint32 {
	return uint32(max(0, min(math.MaxUint32, d.Nanoseconds())))
}

func bytesPerSecond(p uct.Perf) uint64 {
	bw := p.Bandwidth
	if p.SharedBandwidth > 0 && (bw <= 0 || p.SharedBandwidth < bw) {
		bw = p.SharedBandwidth
	}
	if !(bw > 1) { // also a NaN
		return 1
	}
	return uint64(min(bw, 1<<62))
}

// Check reports what makes the address impossible to pack. ErrInvalidParam.
func (a *Address) Check() error {
	if a.UUID == 0 || len(a.MDs) > MaxMDs || len(a.Resources) > MaxResources {
		return fmt.Errorf("%w: address with uuid %#x, %d memory domains, %d resources",
			uct.ErrInvalidParam, a.UUID, len(a.MDs), len(a.Resources))
	}
	for i := range a.MDs {
		if c := a.MDs[i].Component; c == "" || len(c) > MaxComponentName || !printable(c) {
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
	return r.Transport != "" && len(r.Transport) <= MaxTransportName && printable(r.Transport) &&
		len(r.Device) <= MaxDeviceName && printable(r.Device) &&
		int(r.MD) < mds && len(r.DeviceAddr) <= math.MaxUint8 && len(r.IfaceAddr) <= math.MaxUint8
}

// Pack returns the packed address. ErrInvalidParam as [Address.Check];
// ErrTooLong if it would exceed MaxAddrLen.
func (a *Address) Pack() ([]byte, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 256), addrMagic)
	b = append(b, addrVersion, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.MDs)+len(a.Resources)))
	b = binary.LittleEndian.AppendUint64(b, a.UUID)
	for i := range a.MDs {
		b = appendPart(b, partMD, appendName(nil, a.MDs[i].Component))
	}
	for i := range a.Resources {
		b = appendPart(b, partResource, a.Resources[i].pack(nil))
	}
	if len(b) > MaxAddrLen {
		return nil, fmt.Errorf("worker address of %d bytes: %w", len(b), uct.ErrTooLong)
	}
	return b, nil
}

func appendPart(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

func (r *Resource) pack(b []byte) []byte {
	le := binary.LittleEndian
	var flags byte
	if r.AuxOnly {
		flags |= flagAuxOnly
	}
	b = append(b, r.MD, flags)
	b = le.AppendUint64(b, uint64(r.Caps))
	b = le.AppendUint32(b, r.Latency)
	b = le.AppendUint32(b, r.Overhead)
	b = le.AppendUint64(b, r.Bandwidth)
	b = le.AppendUint16(b, uint16(r.Priority))
	b = le.AppendUint32(b, r.AMBcopy)
	b = append(b, byte(r.Atomic.Post32), byte(r.Atomic.Post64), byte(r.Atomic.Fetch32), byte(r.Atomic.Fetch64), byte(r.Atomic.Domain))
	b = appendName(b, r.Transport)
	b = appendName(b, r.Device)
	b = appendShort(b, r.DeviceAddr)
	return appendShort(b, r.IfaceAddr)
}

// UnpackAddress checks and decodes a packed address, which may come from a
// stranger. Parts of an unknown kind are skipped. The result shares nothing with
// b. ErrInvalidAddr.
func UnpackAddress(b []byte) (*Address, error) {
	if len(b) < addrHeader || len(b) > MaxAddrLen {
		return nil, badAddr("length %d", len(b))
	}
	c := cursor{b: b}
	if c.u32() != addrMagic {
		return nil, badAddr("not a worker address")
	}
	if v := c.u8(); v != addrVersion {
		return nil, badAddr("version %d, want %d", v, addrVersion)
	}
	c.u8() // flags: none defined
	parts := int(c.u16())
	a := &Address{UUID: c.u64()}
	for range parts {
		if err := a.unpackPart(&c); err != nil {
			return nil, err
		}
	}
	if len(c.b) != 0 {
		return nil, badAddr("%d bytes after the last part", len(c.b))
	}
	if err := a.Check(); err != nil {
		return nil, badAddr("%v", err)
	}
	return a, nil
}

func (a *Address) unpackPart(c *cursor) error {
	kind := c.u8()
	body := cursor{b: c.take(int(c.u16()))}
	if c.bad {
		return badAddr("truncated part")
	}
	switch kind {
	case partMD:
		if len(a.MDs) == MaxMDs {
			return badAddr("more than %d memory domains", MaxMDs)
		}
		a.MDs = append(a.MDs, MD{Component: body.name(MaxComponentName)})
	case partResource:
		if len(a.Resources) == MaxResources {
			return badAddr("more than %d resources", MaxResources)
		}
		a.Resources = append(a.Resources, unpackResource(&body))
	}
	if body.bad {
		return badAddr("malformed part of kind %d", kind)
	}
	return nil
}

func unpackResource(c *cursor) Resource {
	r := Resource{MD: c.u8()}
	r.AuxOnly = c.u8()&flagAuxOnly != 0
	r.Caps = uct.Caps(c.u64())
	r.Latency = c.u32()
	r.Overhead = c.u32()
	r.Bandwidth = max(1, c.u64())
	r.Priority = int16(c.u16())
	r.AMBcopy = c.u32()
	r.Atomic = uct.AtomicAttr{
		Post32: uct.AtomicOps(c.u8()), Post64: uct.AtomicOps(c.u8()),
		Fetch32: uct.AtomicOps(c.u8()), Fetch64: uct.AtomicOps(c.u8()),
		Domain: uct.AtomicDomain(c.u8()),
	}
	r.Transport = c.name(MaxTransportName)
	r.Device = c.name(MaxDeviceName)
	r.DeviceAddr = c.short()
	r.IfaceAddr = c.short()
	return r
}

func badAddr(format string, args ...any) error {
	return fmt.Errorf("worker address: "+format+": %w", append(args, uct.ErrInvalidAddr)...)
}
