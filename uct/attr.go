package uct

// IfaceAttr describes an open iface. It does not change after open.
type IfaceAttr struct {
	Resource Resource
	Caps     Caps

	AM     OpLimits
	Put    OpLimits
	Get    OpLimits
	Atomic AtomicAttr
	Queue  QueueAttr

	// DeviceAddrLen, IfaceAddrLen and EPAddrLen are address lengths in bytes; 0
	// where the kind of address does not exist.
	DeviceAddrLen int
	IfaceAddrLen  int
	EPAddrLen     int

	// Costs are by variant; those of variants that are not claimed are zero.
	Costs Costs
	// Priority breaks ties between transports that score alike; higher wins.
	Priority int
}

// OpLimits bounds the variants of one operation class, in bytes. The maxima of a
// variant are positive iff it is claimed.
type OpLimits struct {
	MaxShort int
	MaxBcopy int
	MinZcopy int
	MaxZcopy int
	// MaxIOV is the number of IOV elements that a zcopy call takes.
	MaxIOV int
	// MaxHeader is the header length that AMZcopy takes; the header counts
	// against MaxZcopy too.
	MaxHeader int
}

// AtomicAttr lists the atomic operations by word size.
type AtomicAttr struct {
	Post32, Post64   AtomicOps // without result
	Fetch32, Fetch64 AtomicOps // with the old value
	// Domain says with what these atomics are atomic. Operations of different
	// domains must not be mixed on one word.
	Domain AtomicDomain
}

// AtomicDomain is the coherence domain of a transport's atomics.
type AtomicDomain uint8

// Coherence domains. They travel in worker addresses.
const (
	AtomicNone   AtomicDomain = 0
	AtomicDevice AtomicDomain = 1 // with atomics of the same device only
	AtomicCPU    AtomicDomain = 2 // with CPU atomics of the target too
)

// String returns "none", "device" or "cpu".
func (d AtomicDomain) String() string {
	switch d {
	case AtomicNone:
		return "none"
	case AtomicDevice:
		return "device"
	case AtomicCPU:
		return "cpu"
	}
	return "unknown"
}
