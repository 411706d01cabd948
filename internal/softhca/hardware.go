package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Limits of the device that the tables do not set: those of a ConnectX-4.
const (
	maxQueueWR  = 1 << 15
	maxCQE      = 1<<22 - 1
	maxRDAtomic = 16
	maxInline   = 928 // 63 units minus control and datagram segments
)

// QueryDevice implements prm.Hardware.
func (h *hca) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{
		FWVer: "1.0", NodeGUID: h.guid(), MaxMRSize: 1 << 47,
		MaxQP: table.MaxQP - 1, MaxQPWR: maxQueueWR, MaxSGE: 30, MaxCQ: maxObjects, MaxCQE: maxCQE,
		MaxMR: table.MaxMR - 1, MaxPD: maxObjects, MaxAH: 1 << 20, MaxSRQ: maxObjects,
		MaxSRQWR: maxQueueWR - 1, MaxSRQSGE: 31, MaxInline: maxInline,
		MaxRDAtomic: maxRDAtomic, MaxInitRD: maxRDAtomic, MaxMsgSize: maxMessage,
		AtomicCap: verbs.AtomicGlob, PhysPorts: 1, PortCount: 1,
	}, nil
}

func (h *hca) guid() (id uint64) {
	for _, b := range h.gid[8:] {
		id = id<<8 | uint64(b)
	}
	return id
}

// QueryPort implements prm.Hardware.
func (h *hca) QueryPort(port uint8) (verbs.PortAttr, error) {
	if port != 1 {
		return verbs.PortAttr{}, errNoPort
	}
	return verbs.PortAttr{State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU4096,
		GIDs: 1, Ethernet: true, SpeedGbps: 100, InMemory: h.cfg.Fabric == FabricShm}, nil
}

// QueryGID implements prm.Hardware.
func (h *hca) QueryGID(port uint8, index int) (verbs.GID, error) {
	if port != 1 || index != 0 {
		return verbs.GID{}, errNoPort
	}
	return h.gid, nil
}

// AllocUAR implements prm.Hardware. Pages of all types are ordinary memory.
func (h *hca) AllocUAR(prm.UARType) (prm.UAR, error) {
	index, err := h.uars.get()
	if err != nil {
		return prm.UAR{}, err
	}
	block, err := offheap.Alloc(prm.UARPageLen)
	if err != nil {
		h.uars.put(index)
		return prm.UAR{}, err
	}
	h.countUARs(1)
	u := &uarPage{hca: h, block: block}
	uar := prm.UAR{Index: index, Page: u.base(), Doorbell: u}
	if t := h.cfg.Timing; t != nil {
		uar.Doorbell = &timedPage{uarPage: u, page: t.NewPage()}
	}
	return uar, nil
}

// FreeUAR implements prm.Hardware.
func (h *hca) FreeUAR(u prm.UAR) error {
	p := pageOf(u.Doorbell)
	if p == nil || p.hca != h {
		return ucs.ErrInvalidParam
	}
	err := p.block.Free()
	h.uars.put(u.Index)
	h.countUARs(-1)
	return err
}

func (h *hca) countUARs(n int64) {
	h.mu.Lock()
	h.uarPages += n
	h.mu.Unlock()
}

// pageOf returns the page of a doorbell; nil if it is not one of this package.
func pageOf(d prm.Doorbell) *uarPage {
	switch p := d.(type) {
	case *uarPage:
		return p
	case *timedPage:
		return p.uarPage
	}
	return nil
}

// Ring implements prm.Doorbell.
func (u *uarPage) Ring(off uint32, first8 uint64) {
	if off == prm.CQArm {
		u.hca.armCQ(first8)
		return
	}
	_, qpn := prm.SplitCtrlWord(first8)
	if qp := u.hca.qps.find(qpn); qp != nil {
		qp.runOrSchedule()
	}
	if u.hca.port == nil && u.hca.ctl.attention.Load()&attnWork != 0 {
		u.hca.Drive() // on the loop fabric this device is also the peer
	}
}

// armCQ handles a CQ doorbell: the arm word and the number of the CQ.
func (h *hca) armCQ(first8 uint64) {
	h.mu.Lock()
	cq := h.cqs.get(uint32(first8) & ciMask)
	h.mu.Unlock()
	if cq != nil {
		cq.arm(uint32(first8 >> 32))
		h.pollerLeaving()
	}
}

// AllocPD implements prm.Hardware.
func (h *hca) AllocPD() (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pds.add(new(uint32))
}

// DeallocPD implements prm.Hardware.
func (h *hca) DeallocPD(pdn uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pds.get(pdn) == nil {
		return ucs.ErrInvalidParam
	}
	h.pds.remove(pdn)
	return nil
}

// RegMR implements prm.Hardware.
func (h *hca) RegMR(pdn uint32, buf []byte, access verbs.Access) (lkey, rkey uint32, err error) {
	if len(buf) == 0 {
		return 0, 0, ucs.ErrInvalidParam
	}
	key, err := h.register(pdn, buf, access)
	return key, key, err
}

// DeregMR implements prm.Hardware.
func (h *hca) DeregMR(lkey uint32, free verbs.Buffer) error {
	if free == nil {
		return h.deregister(lkey, nil)
	}
	b, ok := free.(freer)
	if !ok {
		return ucs.ErrInvalidParam
	}
	return h.deregister(lkey, b)
}

// CreateAH implements prm.Hardware.
func (h *hca) CreateAH(_ uint32, attr verbs.AHAttr) (handle uint32, raw [prm.AVLen]byte, err error) {
	if !attr.Global || attr.Port != 1 || attr.SGIDIndex != 0 {
		return 0, raw, ucs.ErrInvalidParam
	}
	av := prm.AV{DGID: attr.DGID, HopLimit: attr.HopLimit, TrafficClass: attr.TrafficClass,
		FlowLabel: attr.FlowLabel, RateSL: attr.SL & 7 << 1}
	av.Put(&raw)
	return 0, raw, nil
}

// DestroyAH implements prm.Hardware. An AH is its AV.
func (h *hca) DestroyAH(uint32) error { return nil }

// SetAsyncSink implements prm.Hardware.
func (h *hca) SetAsyncSink(s prm.AsyncSink) { h.sink.Store(&s) }
