package prm

import (
	"unsafe"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Hardware executes mlx5 queues: the kernel driver with the HCA, or
// the software HCA. Package provider allocates the memory of the queues and
// writes and reads it. Any goroutine may call the methods, which
// may block; [Doorbell] does not.
//
// Memory in Params structs is off the Go heap (see internal/offheap), and
// zeroed or initialized as the format requires. The caller must not unmap it before the object
// is destroyed.
type Hardware interface {
	QueryDevice() (verbs.DeviceAttr, error)
	QueryPort(port uint8) (verbs.PortAttr, error)
	QueryGID(port uint8, index int) (verbs.GID, error)

	// AllocUAR maps one UAR page. ErrNoMemory beyond the limits of the device.
	AllocUAR(UARType) (UAR, error)
	FreeUAR(UAR) error

	AllocPD() (pdn uint32, err error)
	DeallocPD(pdn uint32) error

	// AllocBuffer: see verbs.Provider.
	AllocBuffer(n int) (verbs.Buffer, error)
	// RegMR registers buf, to which the hardware refers until DeregMR.
	RegMR(pdn uint32, buf []byte, access verbs.Access) (lkey, rkey uint32, err error)
	// DeregMR returns after the last access through the key, or an *ucs.InUseError, and
	// can then be called again. If free is not nil, it is the buffer that contains the region: the hardware
	// frees it after the last access, for which DeregMR need not wait.
	DeregMR(lkey uint32, free verbs.Buffer) error

	CreateCQ(p CQParams) (cqn uint32, err error)
	DestroyCQ(cqn uint32) error
	CreateSRQ(p SRQParams) (srqn uint32, err error)
	// ArmSRQ sets the limit below which EventSRQLimitReached is raised, once.
	ArmSRQ(srqn uint32, limit int) error
	// DestroySRQ of an XRC SRQ returns an *ucs.InUseError while a message of a peer is
	// arriving. No further message can begin; the caller must call it again.
	DestroySRQ(srqn uint32) error
	CreateQP(p QPParams) (qpn uint32, err error)
	// ModifyQP applies attr. RTR of an RC QP starts to resolve the peer, and
	// does not wait until it is resolved.
	ModifyQP(qpn uint32, attr *verbs.QPAttr, mask verbs.QPAttrMask) error
	// QueryQP returns the state as the device has it.
	QueryQP(qpn uint32) (verbs.QPState, error)
	// DestroyQP returns after the last access of the device to the queues.
	DestroyQP(qpn uint32) error
	// CreateAH fills the 48-byte AV for the address (see AVLen). handle identifies the address
	// in DestroyAH; 0 if the device has no object for it.
	CreateAH(pdn uint32, attr verbs.AHAttr) (handle uint32, av [AVLen]byte, err error)
	// DestroyAH destroys the object of CreateAH. Work requests in flight have a copy of the AV.
	DestroyAH(handle uint32) error

	// SetAsyncSink sets the receiver of asynchronous events.
	SetAsyncSink(AsyncSink)
	Close() error
}

// UARType is how the CPU stores to a UAR page.
type UARType uint8

// Types of UAR pages.
const (
	// UARBlueFlame is a page whose stores the CPU combines, for BlueFlame and for doorbells.
	UARBlueFlame UARType = iota
	// UARPlain is a page for doorbells only, whose stores the CPU does not combine.
	UARPlain
)

// UAR is one mapped UAR page of 4 KiB: two micro-UARs for QPs and the CQ arm
// register.
type UAR struct {
	Index uint32
	// Page is the base; registers are at the offsets UUAR0, UUAR1, CQArm.
	Page unsafe.Pointer
	// Doorbell must be called after each store to the page, by the goroutine that
	// has stored. It is nil on real hardware.
	Doorbell Doorbell
}

// XRCHardware is implemented by Hardware that has XRC. Its CreateQP then takes
// initiators, which have no receive CQ.
type XRCHardware interface {
	// OpenXRCD opens a domain: see verbs.XRCDInitAttr.
	OpenXRCD(attr verbs.XRCDInitAttr) (xrcdn uint32, err error)
	CloseXRCD(xrcdn uint32) error
	// CreateXRCSRQ makes an XRC SRQ. srqn is its number in the domain, which
	// initiators use; handle identifies it in ArmSRQ, DestroySRQ and events, and is
	// unique among all SRQs of the context.
	CreateXRCSRQ(p SRQParams) (handle, srqn uint32, err error)
	// CreateTarget makes a target in RESET; OpenTarget adds a reference to an existing one, and returns
	// ErrInvalidParam if there is none. qpn is its number in the domain; handle identifies it in
	// ModifyQP, QueryQP, DestroyQP and events of this context. DestroyQP drops one reference,
	// and destroys the target with the last reference in the domain.
	CreateTarget(xrcdn uint32) (handle, qpn uint32, err error)
	OpenTarget(xrcdn, qpn uint32) (handle uint32, err error)
}

// RecvDoorbell informs a device in software of receives that were posted to an XRC SRQ:
// the device publishes them to peers, and wakes those that wait. Hardware needs none.
type RecvDoorbell interface {
	// Posted is called after the doorbell record was stored, by the goroutine that
	// posts. It neither blocks nor allocates.
	Posted()
}

// RecvWatcher is implemented by XRCHardware with a RecvDoorbell.
type RecvWatcher interface {
	// RecvDoorbell returns the doorbell of an XRC SRQ by its handle; nil for another SRQ.
	RecvDoorbell(handle uint32) RecvDoorbell
}

// Doorbell informs the software HCA of a store to a UAR page.
type Doorbell interface {
	// Ring gets the page offset and the first 8 bytes that were stored there, as a
	// big-endian number: for a work queue CtrlWord of the last WQE, for
	// CQArm the arm word in the upper half and the CQ's number in the lower half. It may
	// execute work requests before it returns. The caller must not hold a
	// lock that a completion consumer takes.
	Ring(off uint32, first8 uint64)
}

// Pollable is implemented by Hardware that polling threads drive: the
// software HCA.
type Pollable interface {
	// Attention is a word that is not 0 if Drive has work. Load
	// it with sync/atomic. It is valid until Close.
	Attention() *uint32
	// Drive advances the device: arrivals, stalled send queues, timers. Any
	// goroutine; it does not block and returns at once if another one drives.
	Drive()
}

// QueuePollable is implemented by Hardware that must be informed which queue is
// polled: the software HCA with a model of time.
type QueuePollable interface {
	// Poller returns the Pollable for polls of the CQ. The driver calls its Drive before it takes the lock of the
	// queue. nil if the CQ does not exist.
	Poller(cqn uint32) Pollable
}

// Accountant is implemented by Hardware that uses memory of this process: the
// software HCA.
type Accountant interface {
	// Footprint returns the memory of the hardware for each type of object, without
	// the queues, which the driver counts. Any goroutine may call it.
	Footprint() verbs.ResourceBytes
}

// AsyncSink receives asynchronous events by object number.
type AsyncSink interface {
	AsyncEvent(t verbs.EventType, number uint32)
	// Unreachable is verbs.EventUnreachable of a QP.
	Unreachable(qpn uint32, gid verbs.GID)
}

// CQSink receives completion events of one CQ, after an arm.
type CQSink interface {
	CompletionEvent()
}

// EventHardware is implemented by Hardware whose completion events come from descriptors
// of the kernel.
type EventHardware interface {
	NewChannel() (EventChannel, error)
}

// EventChannel is a completion channel of the kernel. Any goroutine.
type EventChannel interface {
	// FD is readable while an event waits. It belongs to the channel.
	FD() int
	// TryRead reads one event and returns the number of its CQ. It calls the kernel.
	TryRead() (cqn uint32, ok bool)
	// Readable reports whether an event waits. It calls the kernel.
	Readable() bool
	// Close closes the channel. The CQs with it are destroyed.
	Close() error
}

// CQParams makes a CQ. CQEs are 64 bytes; see CQE.
type CQParams struct {
	Buf   unsafe.Pointer // CQECount * 64 bytes, every op_own 0xF0
	Count uint32         // entries, a power of two
	DBRec DBRec          // [0] consumer index, [1] arm word
	UAR   UAR            // where the arm doorbell is written
	Sink  CQSink         // receives the events; nil if the CQ has no channel, or a channel of the kernel
	// Channel is the channel of the kernel for the events; nil unless the hardware is an
	// EventHardware.
	Channel EventChannel
	Vector  int  // the completion vector; see verbs.CQInitAttr
	Locked  bool // the driver takes a lock for each poll
}

// SRQParams makes an SRQ.
type SRQParams struct {
	PDN    uint32
	Buf    unsafe.Pointer // Count << Stride bytes, linked list initialised
	Count  uint32         // entries, a power of two
	Stride uint8          // log2 of the bytes of an entry
	DBRec  DBRec          // [0] counter
	MaxSGE int

	// Of an XRC SRQ only.
	XRCDN     uint32
	CQN       uint32
	UserIndex uint32 // as in QPParams: the UserIndex of its completions
}

// QPParams makes a QP in RESET.
type QPParams struct {
	Type     verbs.QPType
	PDN      uint32
	SendCQN  uint32
	RecvCQN  uint32 // 0 of an XRC initiator
	SRQN     uint32 // 0 if the QP has its own receive queue
	SQ       unsafe.Pointer
	SQCount  uint32         // 64-byte basic blocks, a power of two
	RQ       unsafe.Pointer // nil with an SRQ
	RQCount  uint32         // entries, a power of two
	RQStride uint8          // log2 of the bytes of an entry
	RQMaxSGE int
	DBRec    DBRec // [0] receive, [1] send counter
	UAR      UAR
	// Cap has the requested depths and numbers of SGEs, and the maximum inline data of the
	// send queue.
	Cap    verbs.QPCap
	SigAll bool // every send work request is signaled
	// UserIndex is returned in CQE.UserIndex, also in completions that have consumed an
	// entry of a basic SRQ. It is unique among the QPs and the XRC SRQs of the context.
	UserIndex uint32
	// QueueLocked and RegisterLocked report whether the driver locks the queue and the micro-UAR for a
	// post. The execution does not depend on them.
	QueueLocked, RegisterLocked bool
}
