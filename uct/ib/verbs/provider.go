package verbs

import (
	"io"

	"github.com/gucx/gucx/ucs"
)

// Provider implements the verbs objects of one open device: the mlx5
// queues (over the software HCA or hardware), or the kernel's soft-RoCE queues.
// A Context has one. Control methods may block, and any goroutine may call them.
//
// The objects of this package check state transitions, attribute masks, parents of other contexts, and lengths
// against DeviceAttr before they call a provider.
type Provider interface {
	QueryDevice() DeviceAttr
	QueryPort(port uint8) (PortAttr, error)
	QueryGID(port uint8, index int) (GID, error)

	// AllocPD and CreateAH return a Closer that frees the object.
	AllocPD(pd *PD) (io.Closer, error)
	// AllocBuffer returns zeroed page-aligned memory, which peers access without
	// this process if the device supports that.
	AllocBuffer(n int) (Buffer, error)
	RegMR(pd *PD, buf []byte, access Access) (MRProvider, error)
	CreateAH(pd *PD, attr AHAttr) (io.Closer, error)
	CreateCompChannel() (CompChannelProvider, error)
	CreateCQ(cq *CQ, attr CQInitAttr) (CQProvider, error)
	CreateSRQ(srq *SRQ, attr SRQInitAttr) (SRQProvider, error)
	// CreateQP also returns the actual capabilities of the QP, which are
	// at least the requested ones.
	CreateQP(qp *QP, attr QPInitAttr) (QPProvider, QPCap, error)

	// NextAsyncEvent waits for an event. After Close it returns ErrClosed.
	NextAsyncEvent() (AsyncEvent, error)
	Close() error
}

// TDAllocator is implemented by providers that have thread domains. A queue without a thread domain has a lock. AllocTD
// returns a Closer that frees the domain.
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
	// CreateQP makes a target and a QP that refers to it. OpenQP makes another QP that refers to target qpn, and
	// returns ErrInvalidParam if there is none. The target exists until the last of its QPs is closed.
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
	// FD is readable while an event is queued. The channel owns it.
	FD() int
	// Pending reports, with one load, whether an event is queued.
	Pending() bool
	// TryGet removes one event and returns its CQ; nil if there is none.
	TryGet() *CQ
	Close() error
}

// CQProvider is a completion queue.
type CQProvider interface {
	// Poll fills wc with up to len(wc) completions and returns their number, or
	// -1 if the queue has failed: see CQ.Poll.
	Poll(wc []WC) int
	// Arm requests one event at the next completion (or solicited completion).
	// If one has arrived since the last Poll, the event is raised at once.
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
	// State returns the state of the device, which may move the QP to QPStateErr by itself.
	State() QPState
	Close() error
}
