package dv

import (
	"fmt"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// PostSend writes the WQEs of a list of work requests and rings once. The core uses it for all
// operations without a special function in this package; the list nearly always has one WQE of one
// basic block. n is the number of posted work requests; err is the error of wr[n].
func (q *sendQueue) PostSend(wr []verbs.SendWR) (n int, err error) {
	if race.Enabled {
		if err = q.enter(); err != nil {
			return 0, err
		}
		defer q.guard.Leave()
	}
	var word uint64
	var first uint32
	for n < len(wr) {
		w := q.Encode(q.pi, &wr[n], q.av(&wr[n]))
		if w == 0 {
			err = q.encodeError(&wr[n])
			break
		}
		if len(wr) == 1 && fitsBB(w) {
			q.ringBB(w, q.BB(q.pi), wr[0].ID)
			return 1, nil
		}
		word, first = w, q.pi
		*q.id(first) = wr[n].ID
		q.pi += prm.WordBBs(w)
		n++
	}
	if n > 0 {
		if q.reg.batching {
			q.reg.batch(q, word, first, n)
		} else {
			q.dbr.StoreSend(uint16(q.pi))
			q.reg.ringList(word, q, first, n == 1)
		}
	}
	return n, err
}

// enter detects concurrent posts in a thread domain, as verbs does, in builds with the race
// detector. The caller must call guard.Leave unless enter returns an error.
func (q *sendQueue) enter() error {
	if q.guard.Enter() {
		return nil
	}
	return &ucs.OpError{TL: "mlx5", Op: "post send", Err: fmt.Errorf("qp %#x: %w", q.qpn, mlx5.ErrConcurrentPost)}
}

// fitsBB reports whether the WQE of a control word is written to the register as one basic block:
// it has two to four units. A shorter WQE is written as a doorbell.
func fitsBB(word uint64) bool { return prm.WordDS(word)-2 <= prm.SegsPerBB-2 }

// av returns avOf for a UD queue, and nil for others.
func (q *sendQueue) av(wr *verbs.SendWR) *[prm.AVLen]byte {
	if q.datagram {
		return avOf(wr)
	}
	return nil
}

// avOf returns the address vector of a datagram; nil if the work request has none of mlx5.
func avOf(wr *verbs.SendWR) *[prm.AVLen]byte {
	if wr.AH == nil {
		return nil
	}
	av, err := provider.RawAV(wr.AH)
	if err != nil {
		return nil
	}
	return av
}

// encodeError returns the reason why the encoder rejected wr.
//
//go:noinline
func (q *sendQueue) encodeError(wr *verbs.SendWR) error {
	return &ucs.OpError{TL: "mlx5", Op: "post send", Err: q.Refused(wr, avOf(wr))}
}
