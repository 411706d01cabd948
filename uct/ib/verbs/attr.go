package verbs

import (
	"fmt"
	"time"
)

// Access are the rights of a memory region or QP, by enum ibv_access_flags.
// Local read is implied. RemoteWrite and RemoteAtomic need LocalWrite.
type Access uint8

// Rights.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
)

// DeviceAttr are the limits of a device.
type DeviceAttr struct {
	FWVer        string
	NodeGUID     uint64
	VendorID     uint32
	VendorPartID uint32
	MaxMRSize    uint64
	MaxQP        int
	MaxQPWR      int // work requests per queue
	MaxSGE       int
	MaxCQ        int
	MaxCQE       int
	MaxMR        int
	MaxPD        int
	MaxAH        int
	MaxSRQ       int
	MaxSRQWR     int
	MaxSRQSGE    int
	MaxInline    int
	MaxRDAtomic  int // reads and atomics outstanding at a responder QP
	MaxInitRD    int // reads and atomics outstanding at an initiator QP
	MaxMsgSize   uint32
	AtomicCap    AtomicCap
	PhysPorts    uint8
	PortCount    uint8
}

// AtomicCap is the set of other atomics with which the device's atomics are atomic.
type AtomicCap uint8

// Atomic capabilities, by enum ibv_atomic_cap.
const (
	AtomicNone AtomicCap = 0
	AtomicHCA  AtomicCap = 1 // with atomics of the same device
	AtomicGlob AtomicCap = 2 // with CPU atomics too
)

// MTU is a path MTU, by enum ibv_mtu.
type MTU uint8

// Path MTUs.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes is the payload length; 0 for an invalid value.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// PortState of a port, by enum ibv_port_state.
type PortState uint8

// Port states.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

// PortAttr describes a port.
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	GIDs      int
	LID       uint16
	Ethernet  bool // RoCE: addresses are GIDs and an AH needs one
	SpeedGbps float64
	// InMemory means that the CPUs of the host copy the data through shared memory. Then
	// SpeedGbps is not the real bandwidth.
	InMemory bool
}

// AHAttr is the address of a remote port.
type AHAttr struct {
	DGID         GID
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	DLID         uint16
	SL           uint8
	Port         uint8 // local port, from 1
	Global       bool  // use DGID; required on Ethernet
}

// QPType is the service of a QP, by enum ibv_qp_type.
type QPType uint8

// QP types.
const (
	QPTypeRC QPType = 2
	QPTypeUD QPType = 4
	// QPTypeXRCSend is an XRC initiator: it sends only, each work request to an SRQ of
	// the domain that its target is in (IBTA volume 1, annex 14).
	QPTypeXRCSend QPType = 9
	// QPTypeXRCRecv is an XRC target: made in an XRC domain, without queues.
	QPTypeXRCRecv QPType = 10
)

// String returns "RC", "UD", "XRC_SEND" or "XRC_RECV".
func (t QPType) String() string {
	switch t {
	case QPTypeRC:
		return "RC"
	case QPTypeUD:
		return "UD"
	case QPTypeXRCSend:
		return "XRC_SEND"
	case QPTypeXRCRecv:
		return "XRC_RECV"
	}
	return fmt.Sprintf("QPType(%d)", uint8(t))
}

// QPCap are the depths of a QP. Lengths in bytes, depths in work requests.
type QPCap struct {
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int
}

// QPInitAttr makes a QP.
type QPInitAttr struct {
	Type   QPType
	SendCQ *CQ  // not of an XRC target
	RecvCQ *CQ  // not of an XRC initiator or target
	SRQ    *SRQ // or nil; with one, Cap.MaxRecv* are ignored. None with XRC
	Cap    QPCap
	// SigAll makes every send work request signaled.
	SigAll bool
	// TD is the thread domain, or nil. A QP in a thread domain has no lock:
	// only one goroutine at a time may post to QPs in the domain.
	TD *TD
}

// QPState of a QP, by enum ibv_qp_state.
type QPState uint8

// QP states (IBTA volume 1, 10.3).
const (
	QPStateReset QPState = 0
	QPStateInit  QPState = 1
	QPStateRTR   QPState = 2
	QPStateRTS   QPState = 3
	QPStateSQD   QPState = 4
	QPStateSQE   QPState = 5
	QPStateErr   QPState = 6
)

var qpStateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the name in the IBTA specification.
func (s QPState) String() string {
	if int(s) < len(qpStateNames) {
		return qpStateNames[s]
	}
	return fmt.Sprintf("QPState(%d)", uint8(s))
}

// RNRForever as RNRRetry means that retries have no limit (IBTA volume 1, 9.7.5.2.8, "RNR NAK"; Linux,
// drivers/infiniband/sw/rxe/rxe_comp.c).
const RNRForever = 7

// QPAttr has the attributes that Modify sets; the mask selects them.
type QPAttr struct {
	State       QPState
	CurState    QPState
	PathMTU     MTU
	QKey        uint32
	RQPSN       uint32 // 24 bits
	SQPSN       uint32 // 24 bits
	DestQPN     uint32 // 24 bits
	AccessFlags Access // what the peer may do through this QP
	AH          AHAttr
	PKeyIndex   uint16
	MaxRDAtomic uint8 // outstanding as initiator
	MaxDestRD   uint8 // outstanding as responder
	MinRNRTimer uint8 // code 0..31, IBTA volume 1, table 45
	Port        uint8
	Timeout     uint8 // local ACK timeout: 4.096us * 2^n; 0 is forever
	RetryCnt    uint8 // 0..7
	RNRRetry    uint8 // 0..6, or RNRForever
	Cap         QPCap // Query only
}

// QPAttrMask selects attributes, by enum ibv_qp_attr_mask.
type QPAttrMask uint32

// Attribute bits.
const (
	QPMaskState       QPAttrMask = 1 << 0
	QPMaskCurState    QPAttrMask = 1 << 1
	QPMaskAccessFlags QPAttrMask = 1 << 3
	QPMaskPKeyIndex   QPAttrMask = 1 << 4
	QPMaskPort        QPAttrMask = 1 << 5
	QPMaskQKey        QPAttrMask = 1 << 6
	QPMaskAV          QPAttrMask = 1 << 7
	QPMaskPathMTU     QPAttrMask = 1 << 8
	QPMaskTimeout     QPAttrMask = 1 << 9
	QPMaskRetryCnt    QPAttrMask = 1 << 10
	QPMaskRNRRetry    QPAttrMask = 1 << 11
	QPMaskRQPSN       QPAttrMask = 1 << 12
	QPMaskMaxRDAtomic QPAttrMask = 1 << 13
	QPMaskMinRNRTimer QPAttrMask = 1 << 15
	QPMaskSQPSN       QPAttrMask = 1 << 16
	QPMaskMaxDestRD   QPAttrMask = 1 << 17
	QPMaskDestQPN     QPAttrMask = 1 << 20
)

// CQInitAttr makes a CQ.
type CQInitAttr struct {
	Depth   int // completions; rounded up
	Channel *CompChannel
	// Vector is the completion vector of the device that raises the events of the queue: an
	// interrupt, which the kernel may bind to a CPU. 0 is the first. Devices in software have no vectors.
	Vector int
	// SingleThreaded removes the lock: only one goroutine at a time may poll, arm, and
	// close or reset the QPs of the queue. A build with the race detector logs concurrent polls as an
	// error, and the second one returns 0.
	SingleThreaded bool
	// Context is a value of the caller, which CQ.Context returns.
	Context any
}

// SRQType is the type of a shared receive queue, by enum ibv_srq_type.
type SRQType uint8

// SRQ types.
const (
	// SRQTypeBasic is used by the QPs that are made with it.
	SRQTypeBasic SRQType = 0
	// SRQTypeXRC is used by all XRC targets of its domain; each message contains its number.
	SRQTypeXRC SRQType = 1
)

// String returns "basic" or "XRC".
func (t SRQType) String() string {
	switch t {
	case SRQTypeBasic:
		return "basic"
	case SRQTypeXRC:
		return "XRC"
	}
	return fmt.Sprintf("SRQType(%d)", uint8(t))
}

// SRQInitAttr makes a shared receive queue.
type SRQInitAttr struct {
	Type SRQType
	// XRCD is the domain whose targets use an XRC queue, and CQ is the queue for the completions of its
	// receives. Both are nil for a basic queue.
	XRCD   *XRCD
	CQ     *CQ
	MaxWR  int
	MaxSGE int
	Limit  int // as SRQAttr.Limit
	// TD is as in QPInitAttr: the queue has no lock. The same goroutine must post, and poll the completions
	// of its receives.
	TD *TD
}

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxWR  int
	MaxSGE int
	// Limit arms EventSRQLimitReached, raised once when fewer receives than
	// this are posted; 0 disarms.
	Limit int
}

// SRQAttrMask selects SRQ attributes.
type SRQAttrMask uint8

// SRQ attribute bits.
const (
	SRQMaskMaxWR SRQAttrMask = 1 << 0
	SRQMaskLimit SRQAttrMask = 1 << 1
)

// TDInitAttr makes a thread domain.
type TDInitAttr struct {
	// Sharing is the level of UAR sharing: with 1 (or 0) the domain has a UAR page of its
	// own; with 2 an even and an odd domain share a page.
	Sharing int
}

// EventType is the type of an asynchronous event, by enum ibv_event_type. Values of 128 and above
// are not in the enum.
type EventType uint8

// Asynchronous events.
const (
	EventCQErr            EventType = 0
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4
	EventDeviceFatal      EventType = 8
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16

	// EventUnreachable: there is no device at a port. Either a datagram of a UD QP to the port was
	// dropped, as ICMP reports it for UDP; or the device at the port is gone, and all messages that it has sent
	// were delivered. The event is raised for each QP that may have used the port, also for
	// an XRC initiator to a domain of several ports, which continues. The software HCA raises it;
	// most devices do not.
	EventUnreachable EventType = 128
	// EventPeerClosed is EventQPFatal of an RC QP whose peer has closed its device or
	// destroyed its QP. The software HCA raises it if no completion reports the failure with
	// VendorPeerClosed.
	//
	// For an XRC target, EventQPFatal means that the device of its initiator is gone, and EventQPReqErr
	// or EventQPAccessErr that a request was rejected. Every context that has opened the target gets the event.
	EventPeerClosed EventType = 129
)

// AsyncEvent is an asynchronous event; the object that it concerns is set.
type AsyncEvent struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	GID  GID // of EventUnreachable: the port
}

// AckTimeout returns the local ACK timeout of code n; 0 means no timeout.
func AckTimeout(n uint8) time.Duration {
	if n == 0 || n > 31 {
		return 0
	}
	return 4096 * time.Nanosecond << n
}
