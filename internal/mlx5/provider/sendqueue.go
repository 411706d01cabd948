package provider

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// avOf returns the address of a datagram; nil if the work request has no address handle of this provider.
func avOf(wr *verbs.SendWR) *[prm.AVLen]byte {
	if wr.AH == nil {
		return nil
	}
	if ah, ok := wr.AH.Provider().(*addressHandle); ok {
		return &ah.av
	}
	return nil
}

// av is avOf for a queue of datagrams, nil for another.
func (q *sendQueue) av(wr *verbs.SendWR) *[prm.AVLen]byte {
	if !q.datagrams {
		return nil
	}
	return avOf(wr)
}

// explain returns the reason why the encoder has rejected wr.
//
//go:noinline
func (q *sendQueue) explain(wr *verbs.SendWR) error {
	return &ucs.OpError{TL: "mlx5", Op: "post send", Err: q.wqes.Refused(wr, avOf(wr))}
}
