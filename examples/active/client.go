package main

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/gucx/gucx/ucp"
)

// client sends requests. Any number of goroutines may use it.
type client struct {
	w      *ucp.SharedWorker
	ep     *ucp.EP
	failed chan struct{} // closed when the endpoint has failed, with the reason in err
	err    error

	mu    sync.Mutex
	last  uint64                 // number of the latest request
	calls map[uint64]chan uint64 // receivers of the replies, by number
}

func dial(ctx context.Context, c *ucp.Context, addr string) *client {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	cl := &client{calls: map[uint64]chan uint64{}, failed: make(chan struct{})}
	w.OnActive(idReply, cl.handle)
	cfg := ucp.EPConfig{OnError: func(_ *ucp.EP, err error) { cl.err = err; close(cl.failed) }}
	cl.ep = must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{EP: cfg})).EP
	cl.w = w.Share()
	return cl
}

// sum returns the sum of data. It fails if the endpoint has failed or ctx is done.
func (c *client) sum(ctx context.Context, data []byte) (uint64, error) {
	n, reply := c.begin()
	defer c.complete(n)
	header := binary.LittleEndian.AppendUint64(nil, n)
	err := c.w.Run(ctx, func() (*ucp.Request, error) {
		return c.ep.SendActive(idRequest, header, data, nil)
	})
	if err != nil {
		return 0, err
	}
	select {
	case sum := <-reply:
		return sum, nil
	case <-c.failed: // no operation of gucx waits for the reply, so none fails
		return 0, c.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// handle runs inside Progress and must not block: the channel has room. The header has
// arrived when the handler runs; data of any length may not have arrived.
func (c *client) handle(m *ucp.ActiveMessage) {
	if len(m.Header) != 16 {
		return
	}
	n, sum := binary.LittleEndian.Uint64(m.Header), binary.LittleEndian.Uint64(m.Header[8:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply := c.calls[n]; reply != nil {
		delete(c.calls, n)
		reply <- sum
	}
}

func (c *client) begin() (n uint64, reply chan uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	reply = make(chan uint64, 1)
	c.calls[c.last] = reply
	return c.last, reply
}

func (c *client) complete(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, n)
}
