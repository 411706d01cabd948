package adapter

import (
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// hardware implements prm.Hardware with calls to the kernel. Several goroutines may call its methods. The kernel
// identifies objects by handles; hardware identifies them by the numbers of the adapter.
type hardware struct {
	ctx      *uverbs.Context
	reply    contextReply
	attr     verbs.DeviceAttr
	software Software // nil unless the device is software

	sink      atomic.Pointer[prm.AsyncSink]
	eventLoop chan struct{} // closed when deliverEvents has returned
	closed    atomic.Bool

	mu     sync.Mutex // protects the fields below
	lastID uint64
	byID   map[uint64]object
	uars   map[uint32]*uarPage
	pds    map[uint32]uint32 // kernel's handle by PD number
	mrs    map[uint32]*memoryRegion
	cqs    map[uint32]named
	srqs   map[uint32]named
	qps    map[uint32]*queuePair
	// ethernet reports, for each port that was queried, whether it is a RoCE port.
	ethernet map[uint8]bool
}

var (
	_ prm.Hardware      = (*hardware)(nil)
	_ prm.XRCHardware   = (*hardware)(nil)
	_ prm.EventHardware = (*hardware)(nil)
	_ verbs.GIDLister   = (*hardware)(nil)
)

func newHardware(ctx *uverbs.Context, reply contextReply) *hardware {
	h := &hardware{ctx: ctx, reply: reply, eventLoop: make(chan struct{}), byID: map[uint64]object{},
		uars: map[uint32]*uarPage{}, pds: map[uint32]uint32{}, mrs: map[uint32]*memoryRegion{}, cqs: map[uint32]named{},
		srqs: map[uint32]named{}, qps: map[uint32]*queuePair{}, ethernet: map[uint8]bool{}}
	h.software = softwareOf(ctx)
	return h
}

// named is an object of the kernel: its handle, and its ID in events.
type named struct {
	handle uint32
	id     uint64
}

// maxNumber is the limit of the numbers of CQs, SRQs and QPs, which have 24 bits.
const maxNumber = 1 << 24

// checkNumber checks the number of a new object. taken means that another object has the number.
func (h *hardware) checkNumber(op uverbs.Method, number uint32, taken bool) error {
	if number == 0 || number >= maxNumber || taken {
		return h.badReply(op, "number %#x, in use: %v", number, taken)
	}
	return nil
}

// queryLimits queries the attributes of the device.
func (h *hardware) queryLimits() (err error) {
	if h.attr, err = h.ctx.QueryDevice(); err != nil {
		return err
	}
	a := &h.attr
	if a.PhysPorts < 1 || a.MaxQPWR < 1 || a.MaxSGE < 1 || a.MaxCQE < 1 {
		return h.badReply(uverbs.CmdQueryDevice, "%d ports, %d work requests of %d SGEs, %d CQEs", a.PhysPorts, a.MaxQPWR, a.MaxSGE, a.MaxCQE)
	}
	port, maxMessage, err := h.ctx.QueryPort(1)
	if err != nil {
		return err
	}
	h.ethernet[1], a.MaxMsgSize = port.Ethernet, maxMessage
	payload := h.reply.maxPayload()
	a.MaxInline, a.MaxSGE = payload-prm.InlineHdrLen, min(a.MaxSGE, payload/prm.DataLen)
	a.MaxQPWR, a.MaxSRQWR = min(a.MaxQPWR, prm.MaxQueueLen), min(a.MaxSRQWR, prm.MaxQueueLen-1)
	return nil
}

// QueryDevice implements prm.Hardware.
func (h *hardware) QueryDevice() (verbs.DeviceAttr, error) { return h.attr, nil }

// checkPort returns ErrInvalidParam for a port that the device does not have.
func (h *hardware) checkPort(port uint8) error {
	if port < 1 || port > h.attr.PhysPorts {
		return h.invalid("no port %d", port)
	}
	return nil
}

// QueryPort implements prm.Hardware.
func (h *hardware) QueryPort(port uint8) (verbs.PortAttr, error) {
	if err := h.checkPort(port); err != nil {
		return verbs.PortAttr{}, err
	}
	attr, _, err := h.ctx.QueryPort(port)
	return attr, err
}

// QueryGID implements prm.Hardware. Error: ErrInvalidParam for an unused entry.
func (h *hardware) QueryGID(port uint8, index int) (verbs.GID, error) {
	if err := h.checkPort(port); err != nil {
		return verbs.GID{}, err
	}
	e, err := h.ctx.GID(port, index)
	return e.GID, err
}

// GIDs implements verbs.GIDLister.
func (h *hardware) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	if err := h.checkPort(port); err != nil {
		return nil, err
	}
	return h.ctx.GIDs(port)
}

// Close implements prm.Hardware. The kernel destroys the remaining objects.
func (h *hardware) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	err := h.ctx.Close()
	<-h.eventLoop
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.mrs {
		m.pin.Unpin()
	}
	return err
}
