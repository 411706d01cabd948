package mlx5

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sharedRecv is a shared receive queue: a linked list of free entries in the ring
// itself. Posting takes them at head, completions give them back at tail, in
// whatever order they come.
//
//	head -> entry -> entry -> ... -> tail      free; tail is never posted
type sharedRecv struct {
	prov    *Provider
	v       *verbs.SRQ
	srqn    uint32
	uidx    uint32
	view    RQView
	mem     queueMemory
	dbrec   dbrecSlot
	ids     []uint64
	head    uint16
	tail    uint16
	counter uint16
	maxSGE  int
	maxWR   int
	locked  bool
	mu      spinLock
	limit   atomic.Int32
}

// CreateSRQ implements verbs.Provider.
func (p *Provider) CreateSRQ(v *verbs.SRQ, attr verbs.SRQInitAttr) (_ verbs.SRQProvider, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	size, err := sizeSRQ(attr.MaxWR, attr.MaxSGE)
	if err != nil {
		return nil, opError("create SRQ", err)
	}
	s := &sharedRecv{prov: p, v: v, maxSGE: size.maxSGE, maxWR: int(size.count) - 1,
		locked: attr.TD == nil && !p.cfg.SingleThreaded, ids: make([]uint64, size.count)}
	if s.mem, err = allocQueue(size.bytes()); err != nil {
		return nil, err
	}
	undo.Add(s.mem.free)
	if s.dbrec, err = p.dbrecs.take(); err != nil {
		return nil, err
	}
	undo.Add(func() error { p.dbrecs.give(s.dbrec); return nil })
	if s.view, err = NewRQView(s.mem.base, size.count, size.stride); err != nil {
		return nil, opError("create SRQ", err)
	}
	s.link()
	s.uidx = p.users.add(owner{srq: s})
	undo.Add(func() error { p.users.remove(s.uidx); return nil })
	s.srqn, err = p.hw.CreateSRQ(SRQParams{
		PDN: pdn(v.PD()), Buf: s.mem.base, Count: size.count, Stride: size.stride,
		DBRec: s.dbrec.p, MaxSGE: size.maxSGE, UserIndex: s.uidx,
	})
	if err != nil {
		return nil, opError("create SRQ", err)
	}
	undo.Add(func() error { return p.hw.DestroySRQ(s.srqn) })
	p.events.addSRQ(s.srqn, v)
	undo.Add(func() error { p.events.removeSRQ(s.srqn, v); return nil })
	if err = s.Modify(verbs.SRQAttr{Limit: attr.Limit}, verbs.SRQMaskLimit); err != nil {
		return nil, err
	}
	p.count(func(r *verbs.Resources) { r.SRQs++; r.Bytes.SRQs += s.footprint() })
	return s, nil
}

// link makes the list of all entries.
func (s *sharedRecv) link() {
	n := s.view.Count()
	for i := range n {
		PutSRQNext(&s.view.Entry(i)[0], uint16((i+1)%n))
	}
	s.head, s.tail = 0, uint16(n-1)
}

// PostRecv implements verbs.SRQProvider.
func (s *sharedRecv) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	if s.locked {
		s.mu.lock()
	}
	for n < len(wr) {
		if s.head == s.tail {
			err = ucs.ErrNoResource
			break
		}
		if err = checkRecvWR(&wr[n], s.maxSGE); err != nil {
			break
		}
		e := s.view.Entry(uint32(s.head))
		EncodeRecv(e[1:], wr[n].SGList)
		s.ids[s.head] = wr[n].ID
		s.head = SRQNext(&e[0]) & uint16(s.view.mask)
		n++
	}
	if n > 0 {
		s.counter += uint16(n)
		s.dbrec.StoreRecv(s.counter)
	}
	if s.locked {
		s.mu.unlock()
	}
	return n, err
}

// take retires the receive in the given entry and returns its ID.
func (s *sharedRecv) take(entry uint16) uint64 {
	if s.locked {
		s.mu.lock()
	}
	entry &= uint16(s.view.mask)
	id := s.ids[entry]
	s.free(entry)
	if s.locked {
		s.mu.unlock()
	}
	return id
}

// free puts an entry at the end of the list. The lock is held.
func (s *sharedRecv) free(entry uint16) {
	PutSRQNext(&s.view.Entry(uint32(s.tail))[0], entry)
	s.tail = entry
}

// repost posts the receive in the given entry again, which the device has taken, with
// its ID and its memory, behind the others that are posted.
func (s *sharedRecv) repost(entry uint16) {
	if s.locked {
		s.mu.lock()
	}
	entry &= uint16(s.view.mask)
	s.free(entry) // so the list is not empty, and its head is another entry
	to := s.view.Entry(uint32(s.head))
	copy(to[1:], s.view.Entry(uint32(entry))[1:])
	s.ids[s.head] = s.ids[entry]
	s.head = SRQNext(&to[0]) & uint16(s.view.mask)
	s.counter++
	s.dbrec.StoreRecv(s.counter)
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
	if err := s.prov.hw.ArmSRQ(s.srqn, attr.Limit); err != nil {
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

// Close implements verbs.SRQProvider.
func (s *sharedRecv) Close() error {
	p := s.prov
	if err := p.hw.DestroySRQ(s.srqn); err != nil {
		return opError("destroy SRQ", err)
	}
	p.events.removeSRQ(s.srqn, s.v)
	p.users.remove(s.uidx)
	p.dbrecs.give(s.dbrec)
	p.count(func(r *verbs.Resources) { r.SRQs--; r.Bytes.SRQs -= s.footprint() })
	return s.mem.free()
}
