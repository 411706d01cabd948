// Package averbslayer measures mlx5 queues that their user writes and reads itself, under the
// name averbs: "accelerated verbs" of the study of UCX. Below it are the QP, the CQ and the
// memory of the layer verbs, with the same lengths and limits; no post or poll of the verbs
// library is called.
package averbslayer

import (
	"errors"

	"github.com/gucx/gucx/perftest/internal/layers/averbslayer/queue"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/verbslayer"
)

// Name of the layer.
const Name = "averbs"

// Layer opens connections over mlx5 queues.
type Layer struct{ verbs *verbslayer.Layer }

// New makes the layer. verbs opens the objects, and must be used for nothing else: connections of
// one layer share a context.
func New(verbs *verbslayer.Layer) *Layer { return &Layer{verbs} }

// Conn is one end: that of verbs, with queues of its own.
type Conn struct {
	layer.Conn // control path and memory
	verbs      *verbslayer.Conn
	sq         queue.Send
	cq, recvCQ queue.Comp
}

// Open implements layer.Opener. ErrUnsupported on a device whose queues are not those of mlx5.
func (l *Layer) Open(cfg layer.Config) (_ layer.Conn, err error) {
	opened, err := l.verbs.Open(cfg)
	if err != nil {
		return nil, err
	}
	v := opened.(*verbslayer.Conn)
	c := &Conn{Conn: v, verbs: v}
	if err := errors.Join(c.sq.Open(v.QP()), c.cq.Open(v.CQ()), c.recvCQ.Open(v.RecvCQ())); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return c, nil
}

// Progress implements layer.Conn. It polls, and so drives a software device.
func (c *Conn) Progress() int {
	n, _ := c.Poll() // the initiator polls by its Op; a target has posted nothing that could fail
	return n
}

// Poll takes the completions of sends that there are, up to 16. It returns how many, and the
// error of the first work request that failed.
func (c *Conn) Poll() (int, error) { return c.cq.Poll(&c.sq) }

// PollReceives takes the completions of receives, of which there are none: the layer posts none.
func (c *Conn) PollReceives() (int, error) { return c.recvCQ.Poll(&c.sq) }

// Outstanding returns how many work requests were posted and are not complete, as far as was polled.
func (c *Conn) Outstanding() int { return int(c.sq.Posted - c.sq.Done) }
