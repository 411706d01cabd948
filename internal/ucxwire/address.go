package ucxwire

import (
	"errors"
	"fmt"
)

// ErrMalformed is the error of a decoder: the bytes are not a valid encoding.
var ErrMalformed = errors.New("malformed bytes of UCX")

// malformed returns ErrMalformed with the type that was decoded and the reason.
func malformed(what, why string) error { return fmt.Errorf("%w: %s: %s", ErrMalformed, what, why) }

// Address is the address of a worker.
type Address struct {
	// Version is 1 or 2.
	Version int
	// Release is the minor release of the sender, modulo 16, where the address has it; else NoRelease.
	Release int
	// UUID is random and identifies the worker. HasUUID is set in all addresses but those of
	// private data, which have no UUID.
	HasUUID bool
	UUID    uint64
	// ClientID is 0 unless the sender gave it one.
	ClientID uint64
	// AMOnly means that the peer uses a lane for active messages only.
	AMOnly  bool
	Devices []Device
}

// NoRelease is the Release of an address that has none.
const NoRelease = -1

// Device is a device and the interfaces on it.
type Device struct {
	MD     uint8 // index of the memory domain at the sender
	Paths  uint8 // 0: not said
	SysDev uint8 // index of the system device; NoSysDev: not said
	Addr   []byte
	Ifaces []Iface
}

// NoSysDev is the SysDev of a device whose address does not contain it.
const NoSysDev = 0xff

// Iface is an interface of a device.
type Iface struct {
	Transport uint16 // as TransportSum
	Attr      IfaceAttr
	Resource  uint8 // index at the sender, where the layout has it
	Addr      []byte
	EPs       []EPAddr
}

// EPAddr is the address of an endpoint of a transport, for a lane of the endpoint of UCP.
type EPAddr struct {
	Addr []byte
	Lane uint8
}

// Layout determines which optional bytes an address has. The address itself does not contain this information.
type Layout struct {
	// Resource: each interface has the index of its resource. Wireup messages have it, worker addresses
	// do not, and private data do since release 1.14.
	Resource bool
}

// Bounds of an address. Longer ones are malformed.
const (
	maxDevices  = 64
	maxIfaces   = 64 // of a device
	maxEPs      = 64 // of an interface
	MaxAddrLen  = 4096
	noDevices   = 0xff
	flagName    = 1
	flagUUID    = 2
	flagClient  = 4
	flagAMOnly  = 8
	mdEmpty     = 0x80 // device without transports
	mdLegacy    = 0x60 // bits of releases up to 1.18 in version 1
	mdMask      = 0x7f
	devLast     = 0x80
	devPaths    = 0x40
	devSysDev   = 0x20
	devLenMask  = 0x1f
	ifaceLast   = 0x80
	ifaceEPs    = 0x40
	ifaceLen    = 0x3f
	epLast      = 0x80
	epLaneMask  = 0x7f
	releaseMask = 0x0f
)

// DecodeAddress decodes an address, which is all of b or begins it, and returns how long it is.
func DecodeAddress(b []byte, l Layout) (a Address, n int, err error) {
	if len(b) > MaxAddrLen {
		b = b[:MaxAddrLen]
	}
	d := addressDecoder{cursor: cursor{b: b}, layout: l}
	a = d.address()
	if d.why != "" {
		return Address{}, 0, malformed("worker address", d.why)
	}
	return a, d.at, nil
}

type addressDecoder struct {
	cursor
	layout  Layout
	version int
}

func (d *addressDecoder) address() (a Address) {
	head := d.u8()
	d.version = int(head&releaseMask) + 1
	flags := head >> 4
	a.Release = NoRelease
	switch d.version {
	case 1:
	case 2:
		a.Release, flags = int(head>>4), d.u8()
	default:
		d.fail("unknown version")
		return a
	}
	a.Version, a.AMOnly = d.version, flags&flagAMOnly != 0
	if a.HasUUID = flags&flagUUID != 0; a.HasUUID {
		a.UUID = d.u64()
	}
	if flags&flagClient != 0 {
		a.ClientID = d.u64()
	}
	if flags&flagName != 0 {
		d.bytes(int(d.u8()))
	}
	if d.peek() == noDevices {
		d.u8()
		return a
	}
	for more := true; more && d.why == ""; {
		more = d.device(&a)
	}
	return a
}

// device adds one device, or reads the release from a device that only contains the release.
func (d *addressDecoder) device(a *Address) (more bool) {
	md, length := d.u8(), d.u8()
	dev := Device{MD: md & mdMask, SysDev: NoSysDev}
	if length&devPaths != 0 {
		dev.Paths = d.u8()
	}
	if length&devSysDev != 0 {
		dev.SysDev = d.u8()
	}
	n := int(length & devLenMask)
	if d.version == 2 && n == devLenMask { // a longer one continues in the next byte
		n = int(d.u8())
	}
	dev.Addr = d.bytes(n)
	more = length&devLast == 0
	if md&mdEmpty != 0 {
		if d.version == 1 && n == 0 && !more {
			a.Release = int(md & releaseMask)
			return false
		}
	} else {
		if d.version == 1 {
			dev.MD &^= mdLegacy
		}
		d.ifaces(&dev)
	}
	if a.Devices = append(a.Devices, dev); len(a.Devices) > maxDevices {
		d.fail("too many devices")
	}
	return more
}

func (d *addressDecoder) ifaces(dev *Device) {
	for more := true; more && d.why == ""; {
		if len(dev.Ifaces) == maxIfaces {
			d.fail("too many interfaces")
			return
		}
		more = d.iface(dev)
	}
}

func (d *addressDecoder) iface(dev *Device) (more bool) {
	i := Iface{Transport: d.u16()}
	attrLen, decode := attrLenV1, decodeAttrV1
	if d.version == 2 {
		attrLen, decode = attrLenV2, decodeAttrV2
	}
	attr := d.bytes(attrLen)
	if d.why != "" {
		return false
	}
	ok := true
	if i.Attr, ok = decode(attr); !ok {
		d.fail("impossible attributes")
	}
	if d.layout.Resource {
		i.Resource = d.u8()
	}
	length := d.u8()
	n := int(length & ifaceLen)
	if d.version == 2 && n == ifaceLen {
		n = int(d.u8())
	}
	i.Addr = d.bytes(n)
	if length&ifaceEPs != 0 {
		d.eps(&i)
	}
	dev.Ifaces = append(dev.Ifaces, i)
	return length&ifaceLast == 0
}

func (d *addressDecoder) eps(i *Iface) {
	for more := true; more && d.why == ""; {
		if len(i.EPs) == maxEPs {
			d.fail("too many endpoints")
			return
		}
		addr := d.bytes(int(d.u8()))
		lane := d.u8()
		i.EPs = append(i.EPs, EPAddr{addr, lane & epLaneMask})
		more = lane&epLast == 0
	}
}

// AppendAddress appends an address. Lengths of parts must be below 31 bytes.
func AppendAddress(b []byte, a *Address, l Layout) []byte {
	flags := byte(0)
	if a.HasUUID {
		flags |= flagUUID
	}
	if a.ClientID != 0 {
		flags |= flagClient
	}
	if a.AMOnly {
		flags |= flagAMOnly
	}
	release := a.Version == 1 && a.Release != NoRelease // in a device of its own
	if a.Version == 1 {
		b = append(b, flags<<4)
	} else {
		b = append(b, byte(a.Release)<<4|1, flags)
	}
	if a.HasUUID {
		b = le.AppendUint64(b, a.UUID)
	}
	if a.ClientID != 0 {
		b = le.AppendUint64(b, a.ClientID)
	}
	if len(a.Devices) == 0 {
		return append(b, noDevices)
	}
	for i := range a.Devices {
		b = appendDevice(b, a, i, !release && i == len(a.Devices)-1, l)
	}
	if release {
		b = append(b, mdEmpty|byte(a.Release), devLast)
	}
	return b
}

func appendDevice(b []byte, a *Address, index int, last bool, l Layout) []byte {
	d := &a.Devices[index]
	md, length := d.MD, byte(len(d.Addr))
	if len(d.Ifaces) == 0 {
		md |= mdEmpty
	}
	if d.Paths != 0 {
		length |= devPaths
	}
	if d.SysDev != NoSysDev {
		length |= devSysDev
	}
	if last {
		length |= devLast
	}
	b = append(b, md, length)
	if d.Paths != 0 {
		b = append(b, d.Paths)
	}
	if d.SysDev != NoSysDev {
		b = append(b, d.SysDev)
	}
	b = append(b, d.Addr...)
	for i := range d.Ifaces {
		b = appendIface(b, a.Version, &d.Ifaces[i], i == len(d.Ifaces)-1, l)
	}
	return b
}

func appendIface(b []byte, version int, i *Iface, last bool, l Layout) []byte {
	b = le.AppendUint16(b, i.Transport)
	if version == 1 {
		b = appendAttrV1(b, &i.Attr)
	} else {
		b = appendAttrV2(b, &i.Attr)
	}
	if l.Resource {
		b = append(b, i.Resource)
	}
	length := byte(len(i.Addr))
	if len(i.EPs) > 0 {
		length |= ifaceEPs
	}
	if last {
		length |= ifaceLast
	}
	b = append(append(b, length), i.Addr...)
	for k, ep := range i.EPs {
		lane := ep.Lane
		if k == len(i.EPs)-1 {
			lane |= epLast
		}
		b = append(append(append(b, byte(len(ep.Addr))), ep.Addr...), lane)
	}
	return b
}

// cursor reads bytes until one is missing; then all reads return zero values.
type cursor struct {
	b   []byte
	at  int
	why string // what is wrong; empty if nothing is
}

func (c *cursor) fail(why string) {
	if c.why == "" {
		c.why = why
	}
}

// bytes returns the next n bytes, nil if there are not so many.
func (c *cursor) bytes(n int) []byte {
	if c.why != "" || n > len(c.b)-c.at {
		c.fail("it ends early")
		return nil
	}
	c.at += n
	return c.b[c.at-n : c.at : c.at]
}

func (c *cursor) peek() byte {
	if c.why != "" || c.at == len(c.b) {
		return 0
	}
	return c.b[c.at]
}

func (c *cursor) u8() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.bytes(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.bytes(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}
