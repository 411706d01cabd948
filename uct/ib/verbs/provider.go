package verbs

import (
	"io"

	"github.com/gucx/gucx/ucs"
)

// Provider is what implements the verbs objects of one open device: the mlx5
// queues (over the software HCA or hardware), or the kernel's soft-RoCE queues.
// A Context holds one. Control methods may block and be called by any goroutine.
//
// A provider does not check what the objects of this package have checked
// already: state transitions, attribute masks, parents of other contexts, lengths
// against DeviceAttr.
type Provider interface {
	QueryDevice() DeviceAttr
	QueryPort(port uint8) (PortAttr, error)
	QueryGID(port uint8, index int) (GID, error)

	// AllocPD and CreateAH return what frees the object.
	AllocPD(pd *PD) (io.Closer, error)
	// AllocBuffer returns zeroed page-aligned memory that peers reach without
	// help of this process where the device can do that.
	AllocBuffer(n int) (Buffer, error)
	RegMR(pd *PD, buf []byte, access Access) (MRProvider, error)
	CreateAH(pd *PD, attr AHAttr) (io.Closer, error)
	CreateCompChannel() (CompChannelProvider, error)
	CreateCQ(cq *CQ, attr CQInitAttr) (CQProvider, error)
	CreateSRQ(srq *SRQ, attr SRQInitAttr) (SRQProvider, error)
	// CreateQP also returns the capabilities that the QP really has, which are
	// at least those asked for.
	CreateQP(qp *QP, attr QPInitAttr) (QPProvider, QPCap, error)

	// NextAsyncEvent blocks until an event or Close (then ErrClosed).
	NextAsyncEvent() (AsyncEvent, error)
	Close() error
}

// TDAllocator is implemented by providers that have thread domains. Without one, each queue takes its lock. AllocTD
// returns what frees the domain.
type TDAllocator interface {
	AllocTD(attr TDInitAttr) (io.Closer, error)
}

// GIDLister is implemented by providers whose ports have several GIDs.
type GIDLister interface {
	// GIDs returns the entries of the port's GID table that are in use, by index.
	GIDs(port uint8) ([]GIDEntry, error)
}

// XRCProvider is implemented by providers that have XRC. Then CreateQP takes XRC
// initiators, and CreateSRQ XRC queues.
type XRCProvider interface {
	OpenXRCD(attr XRCDInitAttr) (XRCDProvider, error)
}

// XRCDProvider is an XRC domain of the provider.
type XRCDProvider interface {
	// CreateQP makes a target, which lives until the last QP that stands for it is
	// closed. OpenQP makes such a QP: ErrInvalidParam if there is no target qpn.
	CreateQP(qp *QP) (QPProvider, error)
	OpenQP(qp *QP, qpn uint32) (QPProvider, error)
	Close() error
}

// Buffer is memory from AllocBuffer.
type Buffer interface {
	Bytes() []byte
	Close() error // after the MRs over it are closed
}

// MRProvider is a registration.
type MRProvider interface {
	LKey() uint32
	RKey() uint32
	// Close is MR.Close with a nil buffer, and MR.CloseAndFree otherwise.
	Close(free Buffer) error
}

// CompChannelProvider delivers completion events.
type CompChannelProvider interface {
	// FD becomes readable when an event waits. Owned by the channel.
	FD() int
	// Pending is one load: whether an event waits.
	Pending() bool
	// TryGet takes one event; nil if none waits.
	TryGet() *CQ
	Close() error
}

// CQProvider is a completion queue.
type CQProvider interface {
	// Poll fills wc with up to len(wc) completions and returns their number, or
	// -1 when the queue has failed, as CQ.Poll says.
	Poll(wc []WC) int
	// Arm asks for one event at the next completion (or solicited completion).
	// One that arrived since the last Poll raises the event at once.
	Arm(solicitedOnly bool) error
	// Watch is CQ.Watch.
	Watch() *ucs.Watch
	// Depth is the number of completions that fit.
	Depth() int
	Close() error
}

// SRQProvider is a shared receive queue.
type SRQProvider interface {
	PostRecv(wr []RecvWR) (n int, err error)
	Modify(attr SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	Number() uint32
	Close() error
}

// SRQStopper is implemented by the SRQs of an XRCProvider.
type SRQStopper interface {
	// Stop is SRQ.Stop of an XRC SRQ.
	Stop() error
}

// QPProvider is a queue pair.
type QPProvider interface {
	Number() uint32
	PostSend(wr []SendWR) (n int, err error)
	PostRecv(wr []RecvWR) (n int, err error)
	// Modify applies attr to the device; the transition has been checked.
	Modify(attr *QPAttr, mask QPAttrMask) error
	// State is the state as the device has it: it goes to QPStateErr by itself.
	State() QPState
	Close() error
}
