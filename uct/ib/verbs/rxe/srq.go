package rxe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sharedRecv is a shared receive queue. The WR ID that it passes to the kernel is the index of an entry of posted, not the
// user's ID, so that Close of a QP can post a receive of that QP again.
type sharedRecv struct {
	prov   *provider
	v      *verbs.SRQ
	handle uint32
	number uint32
	id     uint64
	maxSGE int
	// mark is the upper half of the WR IDs of receives. The completion of a failed work request does not contain its
	// opcode; mark identifies a receive. mark is random, because users choose the IDs of sends.
	mark uint64

	mu     sync.Mutex
	ring   *ring
	pi     uint32
	posted []postedRecv
	free   []uint32 // unused entries of posted
}

// postedRecv is an outstanding receive.
type postedRecv struct {
	id    uint64
	sges  []verbs.SGE // copy of the user's SGEs
	inUse bool
}

// CreateSRQ implements verbs.Provider.
func (p *provider) CreateSRQ(v *verbs.SRQ, attr verbs.SRQInitAttr) (_ verbs.SRQProvider, err error) {
	const op = "create SRQ"
	if attr.Type != verbs.SRQTypeBasic {
		return nil, opError(op, fmt.Errorf("device %s has no XRC: %w", p.ctx.Name, ucs.ErrUnsupported))
	}
	s := &sharedRecv{prov: p, v: v, id: p.objects.reserve(), mark: uint64(rand.Uint32()) << 32, maxSGE: max(attr.MaxSGE, 1)}
	wr, sges, limit := uint32(attr.MaxWR), uint32(s.maxSGE), uint32(attr.Limit)
	var gotWR, gotSGE uint32
	var driver createSRQReply
	attrs := []uverbs.Attr{
		uverbs.Object(uverbs.AttrHandle, 0),
		uverbs.Object(uverbs.SRQAttrPD, handleOf(v.PD())),
		uverbs.In(uverbs.SRQAttrUser, &s.id),
		uverbs.In(uverbs.SRQAttrMaxWR, &wr),
		uverbs.In(uverbs.SRQAttrMaxSGE, &sges),
		uverbs.In(uverbs.SRQAttrLimit, &limit),
		uverbs.Const(uverbs.SRQAttrType, uint64(verbs.SRQTypeBasic)),
		uverbs.Out(uverbs.SRQAttrReplyMaxWR, &gotWR),
		uverbs.Out(uverbs.SRQAttrReplyMaxSGE, &gotSGE),
		uverbs.Out(uverbs.SRQAttrReplyNumber, &s.number),
		uverbs.Out(uverbs.AttrDriverOut, &driver),
	}
	if err = p.ctx.Call(uverbs.MethodCreateSRQ, attrs...); err != nil {
		return nil, err
	}
	s.handle = uint32(attrs[0].Value)
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	undo.Add(s.destroy)
	if s.ring, err = mapRing(p.ctx, driver.Queue, recvWQELen+sgeLen*s.maxSGE); err != nil {
		return nil, err
	}
	undo.Add(s.ring.unmap)
	if s.ring.depth() < attr.MaxWR {
		return nil, opError(op, fmt.Errorf("%w: %d entries, want %d", ucs.ErrInternal, s.ring.depth(), attr.MaxWR))
	}
	s.pi = s.ring.producer()
	s.makePosted()
	p.objects.add(s.id, s)
	return s, nil
}

// makePosted allocates an entry of posted for each slot of the ring.
func (s *sharedRecv) makePosted() {
	n := s.ring.depth()
	s.posted, s.free = make([]postedRecv, n), make([]uint32, n)
	sges := make([]verbs.SGE, n*s.maxSGE)
	for i := range s.posted {
		s.posted[i].sges, sges = sges[:0:s.maxSGE], sges[s.maxSGE:]
		s.free[i] = uint32(n - 1 - i)
	}
}

// Number implements verbs.SRQProvider.
func (s *sharedRecv) Number() uint32 { return s.number }

// PostRecv implements verbs.SRQProvider.
func (s *sharedRecv) PostRecv(wrs []verbs.RecvWR) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(wrs) {
		if err = s.post(&wrs[n]); err != nil {
			break
		}
		n++
	}
	s.ring.publish(s.pi)
	return n, err
}

// post writes one receive to the ring. Error: ErrNoResource if the ring is full. The caller holds mu.
func (s *sharedRecv) post(wr *verbs.RecvWR) error {
	last := len(s.free) - 1
	if last < 0 || s.ring.free(s.pi) == 0 {
		return ucs.ErrNoResource
	}
	if err := checkSGEs(wr.SGList, s.maxSGE); err != nil {
		return err
	}
	i := s.free[last]
	e := &s.posted[i]
	s.free = s.free[:last]
	e.id, e.sges, e.inUse = wr.ID, append(e.sges[:0], wr.SGList...), true
	s.write(i)
	return nil
}

// write writes entry i of posted to the ring, which must not be full. The caller holds mu.
func (s *sharedRecv) write(i uint32) {
	s.ring.writeRecv(s.pi, s.mark|uint64(i), s.posted[i].sges)
	s.pi = (s.pi + 1) & s.ring.mask
}

// find returns the entry of a WR ID; nil if it is not the WR ID of an outstanding receive. The caller holds mu.
func (s *sharedRecv) find(wrID uint64) *postedRecv {
	i := wrID ^ s.mark
	if i >= uint64(len(s.posted)) || !s.posted[i].inUse {
		return nil
	}
	return &s.posted[i]
}

// retire frees the entry of a completed receive and returns the user's ID; ok is false if the completion is of a send.
func (s *sharedRecv) retire(wrID uint64) (id uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(wrID)
	if e == nil {
		return 0, false
	}
	e.inUse = false
	s.free = append(s.free, uint32(wrID))
	return e.id, true
}

// repost posts the receive of a dropped completion again. The ring is not full, because the receive had a slot.
func (s *sharedRecv) repost(wrID uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(wrID) != nil && s.ring.free(s.pi) > 0 {
		s.write(uint32(wrID))
		s.ring.publish(s.pi)
	}
}

// Modify implements verbs.SRQProvider.
func (s *sharedRecv) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	if mask&verbs.SRQMaskMaxWR != 0 {
		return opError("modify SRQ", fmt.Errorf("resize: %w", ucs.ErrUnsupported))
	}
	if attr.Limit < 0 || attr.Limit > s.ring.depth() {
		return opError("modify SRQ", fmt.Errorf("limit %d, the queue has %d: %w", attr.Limit, s.ring.depth(), ucs.ErrInvalidParam))
	}
	in := uverbs.ModifySRQ{SRQ: s.handle, Mask: uint32(mask), Limit: uint32(attr.Limit)}
	var resized uint64 // address at which the kernel would describe a resized queue; not used
	return s.prov.ctx.Invoke(uverbs.CmdModifySRQ, uverbs.BytesOf(&in), nil, uverbs.In(uverbs.AttrDriverIn, &resized))
}

// Query implements verbs.SRQProvider.
func (s *sharedRecv) Query() (verbs.SRQAttr, error) {
	in := uverbs.QuerySRQ{SRQ: s.handle}
	var out uverbs.QuerySRQReply
	if err := s.prov.ctx.Invoke(uverbs.CmdQuerySRQ, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		return verbs.SRQAttr{}, err
	}
	return verbs.SRQAttr{MaxWR: s.ring.depth(), MaxSGE: s.maxSGE, Limit: int(out.Limit)}, nil
}

func (s *sharedRecv) destroy() error {
	var reply uverbs.DestroyReply
	return s.prov.ctx.Call(uverbs.MethodDestroySRQ, uverbs.Object(uverbs.AttrHandle, s.handle), uverbs.Out(uverbs.DestroyAttrReply, &reply))
}

// Close implements verbs.SRQProvider.
func (s *sharedRecv) Close() error {
	if err := s.destroy(); err != nil {
		return err
	}
	s.prov.objects.remove(s.id)
	return errors.Join(s.ring.unmap())
}
