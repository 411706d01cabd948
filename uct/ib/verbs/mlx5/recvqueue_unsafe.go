package mlx5

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// recvQueue is the producer of a QP's own receive ring. Receives are consumed in
// order, so the work request of the next completion is at tail.
type recvQueue struct {
	view   RQView
	ids    []uint64 // by entry
	head   uint32
	maxSGE int
	locked bool
	mu     spinLock
	dbrec  dbrecSlot

	_    cpu.CacheLinePad
	tail uint32 // of the poller of the QP's receive CQ
	_    cpu.CacheLinePad
}

func (q *recvQueue) init(view RQView, size rqSize) {
	q.view, q.maxSGE = view, size.maxSGE
	q.ids = make([]uint64, size.count)
}

func (q *recvQueue) reset() {
	q.head = 0
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), 0)
	q.dbrec.StoreRecv(0)
}

// take retires the oldest receive and returns its ID; false when none is posted,
// which a device that counts right never makes happen.
func (q *recvQueue) take() (id uint64, ok bool) {
	if len(q.ids) == 0 {
		return 0, false
	}
	id = q.ids[q.tail&q.view.mask]
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), q.tail+1)
	return id, true
}

func (q *recvQueue) post(wr []verbs.RecvWR) (n int, err error) {
	if q.locked {
		q.mu.lock()
	}
	room := uint32(len(q.ids)) - (q.head - mmio.LoadAcquire32(unsafe.Pointer(&q.tail)))
	for n < len(wr) {
		if room == 0 {
			err = ucs.ErrNoResource
			break
		}
		if err = checkRecvWR(&wr[n], q.maxSGE); err != nil {
			break
		}
		EncodeRecv(q.view.Entry(q.head), wr[n].SGList)
		q.ids[q.head&q.view.mask] = wr[n].ID
		q.head++
		room--
		n++
	}
	if n > 0 {
		q.dbrec.StoreRecv(uint16(q.head))
	}
	if q.locked {
		q.mu.unlock()
	}
	return n, err
}

// checkRecvWR refuses lists that do not fit and lengths that have no encoding.
func checkRecvWR(wr *verbs.RecvWR, maxSGE int) error {
	ok := len(wr.SGList) <= maxSGE
	for i := range wr.SGList {
		ok = ok && wr.SGList[i].Length < zeroIsLen
	}
	if ok {
		return nil
	}
	return explainRecv(wr, maxSGE)
}

//go:noinline
func explainRecv(wr *verbs.RecvWR, maxSGE int) error {
	err := fmt.Errorf("%d SGEs, limit %d: %w", len(wr.SGList), maxSGE, ucs.ErrInvalidParam)
	for i, s := range wr.SGList {
		if s.Length >= zeroIsLen {
			err = fmt.Errorf("SGE %d of %d bytes, limit %d: %w", i, s.Length, zeroIsLen-1, ucs.ErrTooLong)
		}
	}
	return &ucs.OpError{TL: "mlx5", Op: "post receive", Err: err}
}
