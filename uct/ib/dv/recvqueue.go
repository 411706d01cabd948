package dv

import (
	"math/bits"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// openList uses the memory of an SRQ and returns its user index. fixed means that its receives are
// those of a buffer.RecvQueue, each with constant memory and ID.
func openList(q *prm.RecvList, srq *verbs.SRQ, fixed bool) (index uint32, err error) {
	raw, err := provider.RawSRQOf(srq)
	if err != nil {
		return 0, err
	}
	view, err := entries(raw.Entries)
	if err != nil {
		return 0, err
	}
	q.Open(view, raw.DBRec, raw.Head, raw.Tail, fixed)
	q.Tell(raw.Doorbell)
	return raw.UserIndex, nil
}

// openRing uses the memory of a receive queue.
func openRing(q *prm.RecvRing, raw provider.RawQP) error {
	view, err := entries(raw.RQ)
	if err != nil {
		return err
	}
	q.Open(view, raw.DBRec, true)
	return nil
}

func entries(r provider.RawRing) (prm.RQView, error) {
	return prm.NewRQView(r.Buf, r.Count, uint8(bits.TrailingZeros32(r.Stride)))
}
