package dv

import (
	"math/bits"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// openList takes over the memory of an SRQ. Its receives are those of an ib.RecvQueue, of
// which each has its memory and its ID for ever.
func openList(q *prm.RecvList, srq *verbs.SRQ) error {
	raw, err := mlx5.RawSRQOf(srq)
	if err != nil {
		return err
	}
	view, err := entries(raw.Entries)
	if err != nil {
		return err
	}
	q.Open(view, raw.DBRec, raw.Head, raw.Tail, true)
	return nil
}

// openRing takes over the memory of a receive queue.
func openRing(q *prm.RecvRing, raw mlx5.RawQP) error {
	view, err := entries(raw.RQ)
	if err != nil {
		return err
	}
	q.Open(view, raw.DBRec, true)
	return nil
}

func entries(r mlx5.RawRing) (prm.RQView, error) {
	return prm.NewRQView(r.Buf, r.Count, uint8(bits.TrailingZeros32(r.Stride)))
}
