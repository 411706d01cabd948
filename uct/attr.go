package uct

import "time"

// IfaceAttr describes an open iface. It does not change after open.
type IfaceAttr struct {
	Resource Resource
	Caps     Caps

	AM     OpLimits
	Put    OpLimits
	Get    OpLimits
	Atomic AtomicAttr

	// DeviceAddrLen, IfaceAddrLen and EPAddrLen are address lengths in bytes; 0
	// where the kind of address does not exist.
	DeviceAddrLen int
	IfaceAddrLen  int
	EPAddrLen     int

	Perf Perf
	// MaxEPs is how many EPs the iface serves well; 0 means no limit.
	MaxEPs int
	// Priority breaks ties between transports that score alike; higher wins.
	Priority int
}

// OpLimits bounds the variants of one operation class, in bytes. A limit of a
// variant that is not claimed is 0.
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

// Coherence domains.
const (
	AtomicNone   AtomicDomain = iota
	AtomicDevice              // with atomics of the same device only
	AtomicCPU                 // with CPU atomics of the target too
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

// Perf is the cost model by which ucp chooses between transports.
type Perf struct {
	// Latency of one small message, one way, on an otherwise idle transport.
	Latency time.Duration
	// LatencyPerEP is added for each connected EP.
	LatencyPerEP time.Duration
	// Overhead is the CPU time that posting one operation takes.
	Overhead time.Duration
	// Bandwidth in bytes per second that one iface reaches alone.
	Bandwidth float64
	// SharedBandwidth in bytes per second divides among the processes of the
	// host; 0 if Bandwidth is not shared.
	SharedBandwidth float64
	// Measured is set when the figures were taken at open and not declared.
	Measured bool
}
