// Package averbslayer measures mlx5 queues that the caller writes and reads itself, under the name
// averbs: "accelerated verbs" of the study of UCX. QP, CQ and memory come from the layer verbs,
// with the same lengths and limits; posts and polls do not call the verbs library.
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

// New returns the layer. Layer verbs opens the objects. The caller must not use verbs otherwise:
// connections of one layer share a context.
func New(verbs *verbslayer.Layer) *Layer { return &Layer{verbs} }

// Conn is one side of a connection: a verbs connection with its own queues.
type Conn struct {
	layer.Conn // control path and memory
	verbs      *verbslayer.Conn
	sq         queue.Send
	cq, recvCQ queue.Comp
}

// Open implements layer.Opener. It returns ErrUnsupported if the queues of the device are not those
// of mlx5.
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
	n, _ := c.Poll() // the initiator polls by its Op; a target has no work request that could fail
	return n
}

// Poll polls up to 16 completions of sends. It returns their number, and the error of the first
// failed work request.
func (c *Conn) Poll() (int, error) { return c.cq.Poll(&c.sq) }

// PollReceives returns 0: the layer posts no receives.
func (c *Conn) PollReceives() (int, error) { return c.recvCQ.Poll(&c.sq) }

// Outstanding returns the number of posted work requests for which no completion was polled.
func (c *Conn) Outstanding() int { return int(c.sq.Posted - c.sq.Done) }
