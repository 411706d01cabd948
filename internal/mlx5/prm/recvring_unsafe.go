package prm

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// RecvRing is the producer of a QP's own receive queue. Receives are consumed
// in order, so the work request of the next completion is at tail. One goroutine may
// call PostRecv while another one calls Take.
type RecvRing struct {
	RQView
	ids   []uint64 // by entry
	head  uint32
	dbrec DBRec
	fixed bool // receives with the same ID always have the same memory

	_    cpu.CacheLinePad
	tail uint32 // Take stores, PostRecv loads
	_    cpu.CacheLinePad
}

// noID is the ID of an entry that has not been posted yet.
const noID = 1<<64 - 1

func newIDs(n uint32) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = noID
	}
	return ids
}

// Open makes the queue empty. v is its ring. With fixed the caller guarantees that receives with the same ID, which must
// not be all ones, always have the same memory: PostRecv does not write an entry again if it contains a receive
// with the same ID.
func (q *RecvRing) Open(v RQView, dbrec DBRec, fixed bool) {
	q.RQView, q.dbrec, q.ids, q.fixed = v, dbrec, newIDs(v.Count()), fixed
}

// Reset drops all receives, as after a move to RESET. If the queue was never opened,
// it does nothing.
func (q *RecvRing) Reset() {
	if len(q.ids) == 0 {
		return
	}
	q.head = 0
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), 0)
	q.dbrec.StoreRecv(0)
}

// Take retires the oldest receive and returns its ID; false if none is posted,
// which happens only if the device counts wrongly. The store of tail is a release store after the
// load of the ID and pairs with the load in PostRecv, which writes to the entry only after it.
func (q *RecvRing) Take() (id uint64, ok bool) {
	if len(q.ids) == 0 {
		return 0, false
	}
	id = q.ids[q.tail&q.mask]
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), q.tail+1)
	return id, true
}

// Footprint returns the memory of the queue without the ring, in bytes.
func (q *RecvRing) Footprint() int64 { return int64(len(q.ids)) * int64(unsafe.Sizeof(q.ids[0])) }

// PostRecv posts receives and returns their number n; err is the reason why wr[n] was not posted: ErrNoResource if
// the queue is full, ErrInvalidParam or ErrTooLong if the receive does not fit in an entry.
func (q *RecvRing) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	room := uint32(len(q.ids)) - (q.head - mmio.LoadAcquire32(unsafe.Pointer(&q.tail)))
	for n < len(wr) {
		if room == 0 {
			err = ucs.ErrNoResource
			break
		}
		if id := &q.ids[q.head&q.mask]; *id != wr[n].ID || !q.fixed {
			e := q.Entry(q.head)
			if !recvFits(&wr[n], len(e)) {
				err = refusedRecv(&wr[n], len(e))
				break
			}
			EncodeRecv(e, wr[n].SGList)
			*id = wr[n].ID
		}
		q.head++
		room--
		n++
	}
	if n > 0 {
		q.dbrec.StoreRecv(uint16(q.head))
	}
	return n, err
}

// RecvList is the producer of a shared receive queue: a linked list of free
// entries in the ring itself. A post removes an entry at head, a completion adds its entry at
// tail, in the order of completion. One goroutine at a time may use it.
//
//	head -> entry -> entry -> ... -> tail      free; tail is never posted
type RecvList struct {
	RQView
	ids     []uint64 // by entry
	dbrec   DBRec
	head    uint16
	tail    uint16
	counter uint16 // receives posted
	fixed   bool   // as in RecvRing

	doorbell RecvDoorbell // nil if posts ring no doorbell
}

// Open sets the ring v, which contains a list from head to tail. fixed is as in RecvRing.
func (q *RecvList) Open(v RQView, dbrec DBRec, head, tail uint16, fixed bool) {
	*q = RecvList{RQView: v, ids: newIDs(v.Count()), dbrec: dbrec, head: head, tail: tail, fixed: fixed}
}

// Tell makes posts ring d; nil means none.
func (q *RecvList) Tell(d RecvDoorbell) { q.doorbell = d }

// Link links all entries to a list.
func (q *RecvList) Link() {
	n := q.Count()
	for i := range n {
		PutSRQNext(q.next(uint16(i)), uint16((i+1)%n))
	}
	q.head, q.tail = 0, uint16(n-1)
}

// Ends returns the first and the last entry of the list.
func (q *RecvList) Ends() (head, tail uint16) { return q.head, q.tail }

// Footprint is as RecvRing.Footprint.
func (q *RecvList) Footprint() int64 { return int64(len(q.ids)) * int64(unsafe.Sizeof(q.ids[0])) }

// PostRecv is as RecvRing.PostRecv.
func (q *RecvList) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	for n < len(wr) {
		if q.head == q.tail {
			err = ucs.ErrNoResource
			break
		}
		if id := &q.ids[q.head]; *id != wr[n].ID || !q.fixed {
			e := q.Entry(uint32(q.head))
			if !recvFits(&wr[n], len(e)-1) {
				err = refusedRecv(&wr[n], len(e)-1)
				break
			}
			EncodeRecv(e[1:], wr[n].SGList)
			*id = wr[n].ID
		}
		q.head = SRQNext(q.next(q.head)) & uint16(q.mask)
		n++
	}
	if n > 0 {
		q.ring(n)
	}
	return n, err
}

// ring publishes n further receives to the device.
func (q *RecvList) ring(n int) {
	q.counter += uint16(n)
	q.dbrec.StoreRecv(q.counter)
	if q.doorbell != nil {
		q.doorbell.Posted()
	}
}

// Take retires the receive in the given entry and returns its ID.
func (q *RecvList) Take(entry uint16) uint64 {
	entry &= uint16(q.mask)
	PutSRQNext(q.next(q.tail), entry)
	q.tail = entry
	return q.ids[entry]
}

// Repost posts a receive again that the device has consumed, with the
// ID and the memory of its entry, after the receives that are posted.
func (q *RecvList) Repost(entry uint16) {
	entry &= uint16(q.mask)
	id := q.Take(entry) // so the list is not empty, and its head is another entry
	copy(q.Entry(uint32(q.head))[1:], q.Entry(uint32(entry))[1:])
	q.ids[q.head] = id
	q.head = SRQNext(q.next(q.head)) & uint16(q.mask)
	q.ring(1)
}

// recvFits reports whether an entry of limit units can hold the receive.
func recvFits(wr *verbs.RecvWR, limit int) bool {
	ok := len(wr.SGList) <= limit
	for i := range wr.SGList {
		ok = ok && wr.SGList[i].Length <= MaxSGELen
	}
	return ok
}

//go:noinline
func refusedRecv(wr *verbs.RecvWR, limit int) error {
	return &ucs.OpError{TL: "mlx5", Op: "post receive", Err: refusedList(wr.SGList, limit)}
}
