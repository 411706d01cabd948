package dv

import (
	"fmt"
	"math/bits"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// sharedQueue posts receives to an SRQ: a list of free entries, linked in the ring
// itself. Posts take them at head, completions give them back at tail, in whatever
// order they come. tail is never posted.
type sharedQueue struct {
	view    mlx5.RQView
	dbr     mlx5.DBRec
	ids     []uint64 // by entry
	head    uint16
	tail    uint16
	counter uint16 // receives posted
}

func (q *sharedQueue) open(srq *verbs.SRQ) error {
	raw, err := mlx5.RawSRQOf(srq)
	if err != nil {
		return err
	}
	if q.view, err = entries(raw.Entries); err != nil {
		return err
	}
	q.dbr, q.head, q.tail = raw.DBRec, raw.Head, raw.Tail
	q.ids = make([]uint64, raw.Entries.Count)
	return nil
}

func entries(r mlx5.RawRing) (mlx5.RQView, error) {
	return mlx5.NewRQView(r.Buf, r.Count, uint8(bits.TrailingZeros32(r.Stride)))
}

// PostRecv is that of verbs.SRQ.
func (q *sharedQueue) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	for n < len(wr) {
		if q.head == q.tail {
			err = ucs.ErrNoResource
			break
		}
		e := q.view.Entry(uint32(q.head))
		if err = checkReceive(&wr[n], len(e)-1); err != nil {
			break
		}
		mlx5.EncodeRecv(e[1:], wr[n].SGList)
		q.ids[q.head] = wr[n].ID
		q.head = mlx5.SRQNext(&e[0]) & uint16(q.view.Count()-1)
		n++
	}
	if n > 0 {
		q.counter += uint16(n)
		q.dbr.StoreRecv(q.counter)
	}
	return n, err
}

// take retires the receive in the given entry and returns its ID.
func (q *sharedQueue) take(entry uint16) uint64 {
	entry &= uint16(q.view.Count() - 1)
	mlx5.PutSRQNext(&q.view.Entry(uint32(q.tail))[0], entry)
	q.tail = entry
	return q.ids[entry]
}

// checkReceive refuses what an entry with room for limit pointers cannot hold.
func checkReceive(wr *verbs.RecvWR, limit int) error {
	ok := len(wr.SGList) <= limit
	for i := range wr.SGList {
		ok = ok && wr.SGList[i].Length <= maxSGELen
	}
	if ok {
		return nil
	}
	return &ucs.OpError{TL: "mlx5", Op: "write receive", Err: fmt.Errorf("%d SGEs, limit %d of up to %d bytes: %w",
		len(wr.SGList), limit, maxSGELen, ucs.ErrInvalidParam)}
}
