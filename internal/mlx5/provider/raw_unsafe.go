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

// The raw queues below are what a verbs object consists of in memory, with the
// fields of mlx5dv_qp, mlx5dv_cq and mlx5dv_srq (infiniband/mlx5dv.h). Who asks
// for them owns the data path of the object from then on: producer and consumer
// indexes, and which BlueFlame buffer is next. PostSend, PostRecv, Poll and Arm of
// the verbs object must not be called any more; its control path goes on as before.
// The memory stays mapped until the object is closed.

// RawRing is a ring of Count entries, a power of two, Stride bytes apart.
type RawRing struct {
	Buf    unsafe.Pointer
	Count  uint32
	Stride uint32
}

// RawUAR is where a queue rings.
type RawUAR struct {
	Page unsafe.Pointer
	// Off is the page offset of the register.
	Off uint32
	// BFLen is the length of each of its two BlueFlame buffers; 0: the register
	// takes doorbells of 8 bytes only.
	BFLen uint32
	// Step is how far from Off every other store goes, to the other buffer; 0: there
	// is one place.
	Step uint32
	// Doorbell is told of each store to the page; nil on hardware.
	Doorbell prm.Doorbell
	// Shared is set if others ring there too: each store is between its Take and
	// Give.
	Shared *SharedRegister
}

// SharedRegister is a register in which the queues of several goroutines ring, under
// a lock. Its holder knows which BlueFlame buffer is next.
type SharedRegister struct{ u *uuar }

// Take waits for the register and returns the page offset to store to. It spins.
func (s *SharedRegister) Take() uint32 {
	s.u.mu.lock()
	return s.u.base + s.u.toggle
}

// Give lets others have the register, after the store. A software device is told
// after it.
func (s *SharedRegister) Give() {
	s.u.toggle ^= s.u.step
	s.u.mu.unlock()
}

// RawQP is a QP in memory.
type RawQP struct {
	QPN uint32
	// UserIndex is what completions carry: those of its sends, and of what it receives
	// into a queue that is not an XRC SRQ. Unique in the context among QPs and XRC SRQs.
	UserIndex uint32
	DBRec     prm.DBRec
	SQ        RawRing // of basic blocks
	RQ        RawRing // Count is 0 with an SRQ
	UAR       RawUAR
	// Guard is that of the thread domain, for builds that notice when goroutines meet.
	Guard *Guard
}

// RawCQ is a CQ in memory.
type RawCQ struct {
	CQN   uint32
	DBRec prm.DBRec
	CQEs  RawRing
	UAR   RawUAR // for CQArm
	// Events counts the completion events that were taken from the channel: the
	// serial number of the next arm.
	Events *atomic.Uint32
	// Overrun is set when the device reports that the queue has overrun.
	Overrun *atomic.Bool
	// Device must be driven by the thread that polls; nil on hardware.
	Device prm.Pollable
	// Guard is for builds that notice when goroutines meet in a poll.
	Guard *Guard
}

// RawSRQ is an SRQ in memory: a list of free entries from Head to Tail, which is
// never posted.
type RawSRQ struct {
	SRQN uint32
	// UserIndex is what completions of an XRC SRQ carry; 0 of a basic one.
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
// polls from one goroutine. Errors as RawQPOf. Closing a QP does not remove its
// completions from the queue any more.
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

// notOurs names the provider, which is a package, by the type of its object.
func notOurs(what string, object any) error {
	provider, _, _ := strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", object), "*"), ".")
	return opError("expose "+what, fmt.Errorf("provider %s has no mlx5 queues: %w", provider, ucs.ErrUnsupported))
}
