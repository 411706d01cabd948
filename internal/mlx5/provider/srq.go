package provider

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sharedRecv is a shared receive queue.
type sharedRecv struct {
	prov     *provider
	v        *verbs.SRQ
	handle   uint32           // identifies it to the hardware
	srqn     uint32           // its number for peers; equal to handle for a basic SRQ
	cq       *compQueue       // for the completions of its receives; nil for a basic SRQ
	uidx     uint32           // 0 for a basic SRQ
	doorbell prm.RecvDoorbell // nil if posts ring no doorbell
	list     prm.RecvList
	mem      queueMemory
	dbrec    dbrecSlot
	maxSGE   int
	maxWR    int
	locked   bool
	gone     bool // the hardware has destroyed it
	mu       spinLock
	limit    atomic.Int32
}

// CreateSRQ implements verbs.Provider.
func (p *provider) CreateSRQ(v *verbs.SRQ, attr verbs.SRQInitAttr) (_ verbs.SRQProvider, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	s := &sharedRecv{prov: p, v: v, locked: attr.TD == nil && !p.cfg.SingleThreaded}
	params, err := s.openQueue(&attr, &undo)
	if err != nil {
		return nil, err
	}
	if attr.Type == verbs.SRQTypeXRC {
		s.uidx = p.users.add(owner{srq: s})
		undo.Add(func() error { p.users.remove(s.uidx); return nil })
		err = s.createXRC(params, &attr)
	} else {
		s.handle, err = p.hw.CreateSRQ(params)
		s.srqn = s.handle
	}
	if err != nil {
		return nil, opError("create SRQ", err)
	}
	undo.Add(func() error { return p.hw.DestroySRQ(s.handle) })
	p.events.addSRQ(s.handle, v)
	undo.Add(func() error { p.events.removeSRQ(s.handle, v); return nil })
	if attr.Limit != 0 {
		if err = s.Modify(verbs.SRQAttr{Limit: attr.Limit}, verbs.SRQMaskLimit); err != nil {
			return nil, err
		}
	}
	p.count(func(r *verbs.Resources) { r.SRQs++; r.Bytes.SRQs += s.footprint() })
	return s, nil
}

// openQueue allocates the ring and the doorbell record, and describes them to the hardware.
func (s *sharedRecv) openQueue(attr *verbs.SRQInitAttr, undo *cleanup.Stack) (params prm.SRQParams, err error) {
	size, err := sizeSRQ(attr.MaxWR, attr.MaxSGE)
	if err != nil {
		return params, opError("create SRQ", err)
	}
	s.maxSGE, s.maxWR = size.maxSGE, int(size.count)-1
	if s.mem, err = allocQueue(size.bytes()); err != nil {
		return params, err
	}
	undo.Add(s.mem.free)
	if s.dbrec, err = s.prov.dbrecs.get(); err != nil {
		return params, err
	}
	undo.Add(func() error { s.prov.dbrecs.put(s.dbrec); return nil })
	view, err := prm.NewRQView(s.mem.base, size.count, size.stride)
	if err != nil {
		return params, opError("create SRQ", err)
	}
	s.list.Open(view, s.dbrec.DBRec, 0, 0, false)
	s.list.Link()
	return prm.SRQParams{PDN: pdn(s.v.PD()), Buf: s.mem.base, Count: size.count, Stride: size.stride,
		DBRec: s.dbrec.DBRec, MaxSGE: size.maxSGE}, nil
}

// createXRC creates an XRC SRQ at the hardware.
func (s *sharedRecv) createXRC(params prm.SRQParams, attr *verbs.SRQInitAttr) (err error) {
	domain, ok := attr.XRCD.Provider().(*xrcDomain)
	if !ok {
		return ucs.ErrUnsupported
	}
	s.cq = attr.CQ.Provider().(*compQueue)
	params.XRCDN, params.CQN, params.UserIndex = domain.xrcdn, s.cq.cqn, s.uidx
	if s.handle, s.srqn, err = domain.hw.CreateXRCSRQ(params); err != nil {
		return err
	}
	if hw, ok := domain.hw.(prm.RecvWatcher); ok {
		s.doorbell = hw.RecvDoorbell(s.handle)
		s.list.Tell(s.doorbell)
	}
	return nil
}

// PostRecv implements verbs.SRQProvider.
func (s *sharedRecv) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	if s.locked {
		s.mu.lock()
	}
	n, err = s.list.PostRecv(wr)
	if s.locked {
		s.mu.unlock()
	}
	return n, err
}

// retire retires the receive in the given entry and returns its ID.
func (s *sharedRecv) retire(entry uint16) uint64 {
	if s.locked {
		s.mu.lock()
	}
	id := s.list.Take(entry)
	if s.locked {
		s.mu.unlock()
	}
	return id
}

// repost posts the receive in the given entry again, which the device has consumed.
func (s *sharedRecv) repost(entry uint16) {
	if s.locked {
		s.mu.lock()
	}
	s.list.Repost(entry)
	if s.locked {
		s.mu.unlock()
	}
}

// Modify implements verbs.SRQProvider. Resizing is not supported.
func (s *sharedRecv) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	if mask&verbs.SRQMaskMaxWR != 0 {
		return opError("resize SRQ", ucs.ErrUnsupported)
	}
	if mask&verbs.SRQMaskLimit == 0 {
		return nil
	}
	if attr.Limit < 0 || attr.Limit > s.maxWR {
		return opError("modify SRQ", fmt.Errorf("limit %d, want 0 to %d: %w", attr.Limit, s.maxWR, ucs.ErrInvalidParam))
	}
	s.limit.Store(int32(attr.Limit))
	if err := s.prov.hw.ArmSRQ(s.handle, attr.Limit); err != nil {
		return opError("modify SRQ", err)
	}
	return nil
}

// Query implements verbs.SRQProvider.
func (s *sharedRecv) Query() (verbs.SRQAttr, error) {
	return verbs.SRQAttr{MaxWR: s.maxWR, MaxSGE: s.maxSGE, Limit: int(s.limit.Load())}, nil
}

// Number implements verbs.SRQProvider.
func (s *sharedRecv) Number() uint32 { return s.srqn }

// Stop implements verbs.SRQStopper. It destroys the queue at the hardware. The driver can still
// poll completions that the hardware has written to the CQ.
func (s *sharedRecv) Stop() error {
	if s.gone {
		return nil
	}
	if err := s.prov.hw.DestroySRQ(s.handle); err != nil {
		return opError("destroy SRQ", err)
	}
	s.prov.events.removeSRQ(s.handle, s.v)
	s.gone = true
	return nil
}

// Close implements verbs.SRQProvider.
func (s *sharedRecv) Close() error {
	if err := guard.AwaitUse(s.Stop); err != nil {
		return err
	}
	p := s.prov
	if s.cq != nil {
		s.cq.cleanSRQ(s) // before the user index can be given to another
		p.users.remove(s.uidx)
	}
	p.dbrecs.put(s.dbrec)
	p.count(func(r *verbs.Resources) { r.SRQs--; r.Bytes.SRQs -= s.footprint() })
	return s.mem.free()
}
