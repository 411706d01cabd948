package provider

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// The raw queues below describe the memory of a verbs object, with the
// fields of mlx5dv_qp, mlx5dv_cq and mlx5dv_srq (infiniband/mlx5dv.h). The caller of RawQPOf, RawCQOf
// or RawSRQOf then owns the data path of the object: producer and consumer
// indexes, and the next BlueFlame buffer. PostSend, PostRecv, Poll and Arm of
// the verbs object must not be called afterwards; the methods of its control path still work.
// The memory is mapped until the object is closed.

// RawRing is a ring of Count entries, a power of two, Stride bytes apart.
type RawRing struct {
	Buf    unsafe.Pointer
	Count  uint32
	Stride uint32
}

// RawUAR is the doorbell register of a queue.
type RawUAR struct {
	Page unsafe.Pointer
	// Off is the page offset of the register.
	Off uint32
	// BFLen is the length of each of its two BlueFlame buffers; 0: the register
	// accepts doorbells of 8 bytes only.
	BFLen uint32
	// Step is the distance from Off to the other buffer, for every second store; 0: there
	// is one buffer.
	Step uint32
	// Doorbell must be called after each store to the page; nil on hardware.
	Doorbell prm.Doorbell
	// Shared is set if other queues use the register too: then each store must be between Shared.Take and
	// Shared.Give.
	Shared *SharedRegister
}

// SharedRegister is a register that the queues of several goroutines use, under
// a lock. It contains the next BlueFlame buffer.
type SharedRegister struct{ u *uuar }

// Take locks the register and returns the page offset for the next store. It spins.
func (s *SharedRegister) Take() uint32 {
	s.u.mu.lock()
	return s.u.base + s.u.toggle
}

// Give unlocks the register after the store. Call RawUAR.Doorbell after Give.
func (s *SharedRegister) Give() {
	s.u.toggle ^= s.u.step
	s.u.mu.unlock()
}

// RawQP is a QP in memory.
type RawQP struct {
	QPN uint32
	// UserIndex is the user index in completions of its sends, and of its receives
	// except into an XRC SRQ. It is unique in the context among QPs and XRC SRQs.
	UserIndex uint32
	DBRec     prm.DBRec
	SQ        RawRing // of basic blocks
	RQ        RawRing // Count is 0 with an SRQ
	UAR       RawUAR
	// Guard is the guard of the thread domain: see Guard.
	Guard *Guard
}

// RawCQ is a CQ in memory.
type RawCQ struct {
	CQN   uint32
	DBRec prm.DBRec
	CQEs  RawRing
	UAR   RawUAR // for CQArm
	// Events is the number of completion events that were read from the channel: the
	// serial number of the next arm.
	Events *atomic.Uint32
	// Overrun is set when the device reports that the queue has overrun.
	Overrun *atomic.Bool
	// Device must be driven by the thread that polls; nil on hardware.
	Device prm.Pollable
	// Guard detects concurrent polls: see Guard.
	Guard *Guard
}

// RawSRQ is an SRQ in memory: a list of free entries from Head to Tail, which is
// never posted.
type RawSRQ struct {
	SRQN uint32
	// UserIndex is the user index in completions of an XRC SRQ; 0 for a basic SRQ.
	UserIndex  uint32
	DBRec      prm.DBRec
	Entries    RawRing
	Head, Tail uint16
	// Doorbell is told of each post; nil for most queues. See prm.RecvList.Tell.
	Doorbell prm.RecvDoorbell
}

// RawSupported returns ErrUnsupported, with the provider's name, for a device whose
// queues are not mlx5's.
func RawSupported(dev *verbs.Context) error {
	if _, ok := dev.Provider().(*provider); !ok {
		return notOurs("queues", dev.Provider())
	}
	return nil
}

// RawQPOf returns the queues of a QP to which nothing has been posted.
// ErrUnsupported, with the provider's name, if they are not mlx5's.
func RawQPOf(qp *verbs.QP) (RawQP, error) {
	q, ok := qp.Provider().(*queuePair)
	if !ok {
		return RawQP{}, notOurs("QP", qp.Provider())
	}
	r := RawQP{
		QPN: q.qpn, UserIndex: q.uidx, DBRec: q.sq.dbrec.DBRec, UAR: rawUUAR(q.sq.uuar), Guard: &Guard{},
		SQ: RawRing{Buf: q.sq.wqes.Base(), Count: q.sq.wqes.Count(), Stride: prm.BBLen},
	}
	if q.rq.Base() != nil {
		r.RQ = rawEntries(&q.rq.RQView)
	}
	if q.td != nil {
		r.Guard = &q.td.guard
	}
	return r, nil
}

func rawUUAR(u *uuar) RawUAR {
	r := RawUAR{Page: u.uar.Page, Off: u.base, Step: u.step, Doorbell: u.uar.Doorbell}
	if u.blueFlame {
		r.BFLen = prm.BFBufLen
	}
	if u.locked {
		r.Shared = &SharedRegister{u}
	}
	return r
}

func rawEntries(v *prm.RQView) RawRing {
	return RawRing{Buf: v.Base(), Count: v.Count(), Stride: v.Stride()}
}

// RawCQOf returns the queue of a CQ that was never polled, which its creator
// polls from one goroutine. Errors as RawQPOf. Afterwards Close of a QP does not remove its
// completions from the queue.
func RawCQOf(cq *verbs.CQ) (RawCQ, error) {
	c, ok := cq.Provider().(*compQueue)
	if !ok {
		return RawCQ{}, notOurs("CQ", cq.Provider())
	}
	c.raw = true
	return RawCQ{
		CQN: c.cqn, DBRec: c.dbrec.DBRec, UAR: RawUAR{Page: c.uar.Page, Off: prm.CQArm, Doorbell: c.uar.Doorbell},
		CQEs:   RawRing{Buf: c.cqes.Base(), Count: c.cqes.Count(), Stride: prm.CQELen},
		Events: &c.armSN, Overrun: &c.overrun, Device: c.cqes.Device(), Guard: &c.guard,
	}, nil
}

// RawSRQOf returns the queue of an SRQ to which nothing has been posted.
// Completions that use it must go to CQs that are raw as well. Errors as RawQPOf.
func RawSRQOf(srq *verbs.SRQ) (RawSRQ, error) {
	s, ok := srq.Provider().(*sharedRecv)
	if !ok {
		return RawSRQ{}, notOurs("SRQ", srq.Provider())
	}
	head, tail := s.list.Ends()
	return RawSRQ{SRQN: s.srqn, UserIndex: s.uidx, DBRec: s.dbrec.DBRec, Entries: rawEntries(&s.list.RQView), Head: head, Tail: tail,
		Doorbell: s.doorbell}, nil
}

// RawAV returns the datagram segment of an address handle, which must not be changed;
// prm.PutAVDest completes it.
// Errors as RawQPOf.
func RawAV(ah *verbs.AH) (*[prm.AVLen]byte, error) {
	a, ok := ah.Provider().(*addressHandle)
	if !ok {
		return nil, notOurs("AH", ah.Provider())
	}
	return &a.av, nil
}

// notOurs returns the error for an object of another provider, with the package of its type.
func notOurs(what string, object any) error {
	provider, _, _ := strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", object), "*"), ".")
	return opError("expose "+what, fmt.Errorf("provider %s has no mlx5 queues: %w", provider, ucs.ErrUnsupported))
}
