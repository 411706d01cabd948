package ucxwire

import "math"

// Caps are capabilities of an interface, by the bits of an address of version 1.
type Caps uint32

// Capabilities.
const (
	CapAMBcopy        Caps = 1 << 8
	CapPending        Caps = 1 << 9
	CapPutShort       Caps = 1 << 10
	CapPutBcopy       Caps = 1 << 11
	CapPutZcopy       Caps = 1 << 12
	CapGetShort       Caps = 1 << 13
	CapGetBcopy       Caps = 1 << 14
	CapGetZcopy       Caps = 1 << 15
	CapConnectToIface Caps = 1 << 16
	CapCBSync         Caps = 1 << 17
	CapCBAsync        Caps = 1 << 18
	CapTagEager       Caps = 1 << 19
	CapTagRndv        Caps = 1 << 20
	CapEventRecv      Caps = 1 << 21
	CapAtomic32       Caps = 1 << 30
	CapAtomic64       Caps = 1 << 31

	capsPut      = CapPutShort | CapPutBcopy | CapPutZcopy
	capsGet      = CapGetShort | CapGetBcopy | CapGetZcopy
	priorityMask = 0xff
)

// IfaceAttr is what an address says of an interface. Peers choose their protocols by it.
type IfaceAttr struct {
	Overhead  float64 // seconds for a message
	Bandwidth float64 // bytes per second; positive
	Latency   float64 // seconds
	Priority  uint8
	Caps      Caps
	// SegLen is the largest fragment in bytes that the interface receives, a multiple of 64; 0 in an
	// address of version 1.
	SegLen int
}

// TCPAttr is what an interface of transport tcp publishes here. It lacks the capabilities of put, so
// that UCX never makes its transport write to an address of ours.
var TCPAttr = IfaceAttr{
	Overhead: 5e-5, Bandwidth: 1.1875e9, Latency: 5.26e-6, Priority: 1,
	Caps:   CapAMBcopy | CapPending | CapConnectToIface | CapCBSync | CapEventRecv,
	SegLen: 8192,
}

// Lengths of attributes in bytes.
const (
	attrLenV1 = 16
	attrLenV2 = 8
)

// ranges of an address of version 2: overhead and latency in nanoseconds, bandwidth in bytes per second.
var (
	overheadRange  = float8{0, 12}
	bandwidthRange = float8{29, 42}
	latencyRange   = float8{4, 17}
)

// capsV2 pairs the flags of version 2 with capabilities. A flag is sent if any of caps is there, and
// received as the last of them.
var capsV2 = [...]struct {
	flag      uint16
	any, mean Caps
}{
	{1, CapConnectToIface, CapConnectToIface},
	{2, CapCBSync, CapCBSync},
	{4, CapCBAsync, CapCBAsync},
	{8, capsPut, CapPutZcopy},
	{16, capsGet, CapGetZcopy},
	{32, CapTagEager, CapTagEager},
	{64, CapTagRndv, CapTagRndv},
	{128, CapEventRecv, CapEventRecv},
	{256, CapAtomic32, CapAtomic32},
	{512, CapAtomic64, CapAtomic64},
}

func appendAttrV1(b []byte, a *IfaceAttr) []byte {
	for _, f := range [...]float64{a.Overhead, a.Bandwidth, a.Latency} {
		b = le.AppendUint32(b, math.Float32bits(float32(f)))
	}
	return le.AppendUint32(b, uint32(a.Caps)&^priorityMask|uint32(a.Priority))
}

func decodeAttrV1(b []byte) (a IfaceAttr, ok bool) {
	f := func(at int) float64 { return float64(math.Float32frombits(le.Uint32(b[at:]))) }
	word := le.Uint32(b[12:])
	a = IfaceAttr{Overhead: f(0), Bandwidth: f(4), Latency: f(8), Priority: uint8(word), Caps: Caps(word &^ priorityMask)}
	return a, a.valid()
}

// valid refuses numbers with which costs cannot be computed.
func (a *IfaceAttr) valid() bool {
	finite := func(f float64) bool { return f >= 0 && f <= math.MaxFloat32 }
	return finite(a.Overhead) && finite(a.Latency) && finite(a.Bandwidth) && a.Bandwidth > 0
}

func appendAttrV2(b []byte, a *IfaceAttr) []byte {
	b = append(b, overheadRange.pack(a.Overhead*1e9), bandwidthRange.pack(a.Bandwidth), latencyRange.pack(a.Latency*1e9), a.Priority)
	b = le.AppendUint16(b, uint16(min(a.SegLen/segUnit, math.MaxUint16)))
	var flags uint16
	for _, c := range capsV2 {
		if a.Caps&c.any != 0 {
			flags |= c.flag
		}
	}
	return le.AppendUint16(b, flags)
}

// segUnit is the unit of SegLen in an address of version 2, in bytes.
const segUnit = 64

func decodeAttrV2(b []byte) (a IfaceAttr, ok bool) {
	a = IfaceAttr{Overhead: overheadRange.unpack(b[0]) / 1e9, Bandwidth: bandwidthRange.unpack(b[1]),
		Latency: latencyRange.unpack(b[2]) / 1e9, Priority: b[3], SegLen: int(le.Uint16(b[4:])) * segUnit}
	flags := le.Uint16(b[6:])
	for _, c := range capsV2 {
		if flags&c.flag != 0 {
			a.Caps |= c.mean
		}
	}
	return a, a.valid()
}

// float8 is the range, as logarithms of 2, of a number in one byte: the lower half is the exponent
// above that of min plus 1 (0: the number is 0; 15: it is not a number), the upper half the bits of the
// fraction.
type float8 struct{ min, max int }

const float8NaN = 15

// pack rounds towards 0. A number below the range becomes its least one, one above it has the
// exponent of half the maximum, as in UCX.
func (r float8) pack(v float64) byte {
	fraction, exp := math.Frexp(v) // v = fraction * 2^exp with fraction in [0.5, 1)
	switch exp--; {
	case math.IsNaN(v):
		return float8NaN
	case v <= 0:
		return 0
	case exp > r.max:
		return byte(r.max - r.min)
	case exp <= r.min-1:
		return 1
	}
	return byte(exp-r.min+1) | byte((fraction*2-1)*16)<<4
}

func (r float8) unpack(b byte) float64 {
	switch e := int(b & 15); e {
	case 0:
		return 0
	case float8NaN:
		return math.NaN()
	default:
		return math.Ldexp(1+float64(b>>4)/16, e-1+r.min)
	}
}

// TransportSum is the checksum by which addresses name a transport: "tcp" is 0x19cf. It is a CRC of 16
// bits with the reflected polynomial 0x8408.
func TransportSum(name string) uint16 {
	sum := uint16(math.MaxUint16)
	for i := range len(name) {
		sum ^= uint16(name[i])
		for range 8 {
			sum = sum>>1 ^ sum&1*0x8408
		}
	}
	return ^sum
}
