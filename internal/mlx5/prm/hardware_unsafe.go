package prm

import (
	"unsafe"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Hardware is what stands behind mlx5 queues: the kernel driver with the HCA, or
// the software HCA. The driver in this package allocates the queue memory and
// writes and reads it; Hardware executes. Methods may be called by any goroutine
// and may block, except [Doorbell].
//
// Memory handed over in Params structs is off the Go heap (see internal/offheap),
// zeroed or initialised as the format demands, and stays mapped until the object
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
	// RegMR registers buf; the hardware keeps it reachable until DeregMR.
	RegMR(pdn uint32, buf []byte, access verbs.Access) (lkey, rkey uint32, err error)
	// DeregMR returns after the last access through the key, or an *ucs.InUseError, and
	// can then be called again. If free is not nil, it is the buffer that the region is
	// in: the hardware takes it back after the last access and need not wait for that.
	DeregMR(lkey uint32, free verbs.Buffer) error

	CreateCQ(p CQParams) (cqn uint32, err error)
	DestroyCQ(cqn uint32) error
	CreateSRQ(p SRQParams) (srqn uint32, err error)
	// ArmSRQ sets the limit below which EventSRQLimitReached is raised, once.
	ArmSRQ(srqn uint32, limit int) error
	// DestroySRQ of an XRC SRQ is *ucs.InUseError while a peer is in the middle of a
	// message: none begins any more, and it is to be called again.
	DestroySRQ(srqn uint32) error
	CreateQP(p QPParams) (qpn uint32, err error)
	// ModifyQP applies attr. RTR of an RC QP starts to resolve the peer and
	// does not wait for it.
	ModifyQP(qpn uint32, attr *verbs.QPAttr, mask verbs.QPAttrMask) error
	// QueryQP returns the state as the device has it.
	QueryQP(qpn uint32) (verbs.QPState, error)
	// DestroyQP returns after the last access of the device to the queues.
	DestroyQP(qpn uint32) error
	// CreateAH fills the 48-byte AV for the address (see AVLen). handle names the address
	// in DestroyAH; 0 if the device has no object for it.
	CreateAH(pdn uint32, attr verbs.AHAttr) (handle uint32, av [AVLen]byte, err error)
	// DestroyAH frees what CreateAH has made. Work requests in flight have a copy of the AV.
	DestroyAH(handle uint32) error

	// SetAsyncSink sets who is told of asynchronous events.
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
	// Doorbell is told of a store to the page, after it, by the goroutine that
	// stored. nil on real hardware, which sees the store itself.
	Doorbell Doorbell
}

// XRCHardware is implemented by Hardware that has XRC. Its CreateQP then takes
// initiators, which have no receive CQ.
type XRCHardware interface {
	// OpenXRCD opens a domain: see verbs.XRCDInitAttr.
	OpenXRCD(attr verbs.XRCDInitAttr) (xrcdn uint32, err error)
	CloseXRCD(xrcdn uint32) error
	// CreateXRCSRQ makes an XRC SRQ. srqn is its number in the domain, by which
	// initiators send to it; handle names it in ArmSRQ, DestroySRQ and events, and is
	// another than that of every SRQ of the context.
	CreateXRCSRQ(p SRQParams) (handle, srqn uint32, err error)
	// CreateTarget makes a target in RESET; OpenTarget refers to one that is there:
	// ErrInvalidParam if it is not. qpn is its number in the domain; handle names it in
	// ModifyQP, QueryQP, DestroyQP and events of this context. DestroyQP takes one reference
	// back, and destroys the target with the last of the domain.
	CreateTarget(xrcdn uint32) (handle, qpn uint32, err error)
	OpenTarget(xrcdn, qpn uint32) (handle uint32, err error)
}

// RecvDoorbell is how a device in software learns that receives were posted to an XRC SRQ:
// it shows them to peers, and wakes those that wait. Hardware looks by itself.
type RecvDoorbell interface {
	// Posted is called after the doorbell record was stored, by the goroutine that
	// posts. It neither blocks nor allocates.
	Posted()
}

// RecvWatcher is implemented by XRCHardware that wants to be told.
type RecvWatcher interface {
	// RecvDoorbell is that of an XRC SRQ, by its handle; nil of another SRQ.
	RecvDoorbell(handle uint32) RecvDoorbell
}

// Doorbell is how the software HCA sees a store to a UAR page.
type Doorbell interface {
	// Ring gets the page offset and the first 8 bytes that were stored there as a
	// big-endian number: for a work queue that is CtrlWord of the last WQE, for
	// CQArm the arm word in the upper half and the CQ's number in the lower. It may
	// execute work requests before it returns, and must not be called with a
	// lock held that a completion consumer takes.
	Ring(off uint32, first8 uint64)
}

// Pollable is implemented by Hardware that is driven by the thread that polls: the
// software HCA. Real hardware needs none.
type Pollable interface {
	// Attention is a word that is nonzero when Drive has something to do. Load
	// it with sync/atomic. It is valid until Close.
	Attention() *uint32
	// Drive advances the device: arrivals, stalled send queues, timers. Any
	// goroutine; it does not block and returns at once if another one drives.
	Drive()
}

// QueuePollable is implemented by Hardware that wants to know which queue is
// polled: the software HCA under a model of time.
type QueuePollable interface {
	// Poller stands for the device in polls of the CQ, as Pollable does in those
	// of other hardware: Drive is called before the driver takes the lock of the
	// queue. nil if the CQ does not exist.
	Poller(cqn uint32) Pollable
}

// Accountant is implemented by Hardware that lives in memory of this process: the
// software HCA.
type Accountant interface {
	// Footprint is the memory that the hardware keeps of each kind of object, without
	// the queues, which the driver counts. Any goroutine.
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
	// TryRead takes one event and returns the number of its CQ. It calls the kernel.
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
	Sink  CQSink         // who gets the events; nil if the CQ has no channel, or one of the kernel
	// Channel is where the kernel delivers the events; nil unless the hardware is an
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
	UserIndex uint32 // as in QPParams: what its completions carry
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
	// Cap has the depths and SGEs that were asked for, and the longest inline data of the
	// send queue.
	Cap    verbs.QPCap
	SigAll bool // every send work request is signaled
	// UserIndex is returned in CQE.UserIndex, also of completions that consumed an
	// entry of a basic SRQ; unique among the QPs and the XRC SRQs of the context.
	UserIndex uint32
	// QueueLocked and RegisterLocked say which locks the driver takes for a post:
	// of the queue, and of the micro-UAR. Devices execute the same either way.
	QueueLocked, RegisterLocked bool
}
