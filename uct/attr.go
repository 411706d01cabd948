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
	// if the iface has no address of that type.
	DeviceAddrLen int
	IfaceAddrLen  int
	EPAddrLen     int

	// Costs has the cost of each variant; zero for variants that are not claimed.
	Costs Costs
	// Priority breaks ties between transports with equal scores; the higher one wins.
	Priority int
}

// OpLimits limits the variants of one operation class, in bytes. The maxima of a
// variant are positive iff the variant is claimed.
type OpLimits struct {
	MaxShort int
	MaxBcopy int
	MinZcopy int
	MaxZcopy int
	// MaxIOV is the maximum number of IOV elements of a zcopy call.
	MaxIOV int
	// MaxHeader is the maximum header length of AMZcopy; the header also counts
	// against MaxZcopy.
	MaxHeader int
}

// AtomicAttr lists the atomic operations by word size.
type AtomicAttr struct {
	Post32, Post64   AtomicOps // without result
	Fetch32, Fetch64 AtomicOps // with the old value
	// Domain is the set of accesses with respect to which these operations are atomic. The caller must not mix
	// operations of different domains on one word.
	Domain AtomicDomain
}

// AtomicDomain is the coherence domain of a transport's atomics.
type AtomicDomain uint8

// Coherence domains. Worker addresses contain these values.
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
