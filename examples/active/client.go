package main

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/gucx/gucx/ucp"
)

// client sends requests of any number of goroutines.
type client struct {
	w    *ucp.SharedWorker
	ep   *ucp.EP
	gone chan struct{} // closed when the server has gone, for the reason in err
	err  error

	mu    sync.Mutex
	last  uint64                 // number of a request
	calls map[uint64]chan uint64 // where the replies go to, by number
}

func dial(ctx context.Context, c *ucp.Context, addr string) *client {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	cl := &client{calls: map[uint64]chan uint64{}, gone: make(chan struct{})}
	w.OnActive(idReply, cl.handle)
	cfg := ucp.EPConfig{OnError: func(_ *ucp.EP, err error) { cl.err = err; close(cl.gone) }}
	cl.ep = must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{EP: cfg})).EP
	cl.w = w.Share()
	return cl
}

// sum returns the sum of data, or why there is none: the server has gone, or ctx has ended.
func (c *client) sum(ctx context.Context, data []byte) (uint64, error) {
	n, reply := c.begin()
	defer c.end(n)
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
	case <-c.gone: // nothing of gucx waits for a reply, so nothing of it fails
		return 0, c.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// handle runs inside Progress: the channel has room, so that it does not block. A header always
// comes with its message; data, however short, may have to be received first.
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

func (c *client) end(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, n)
}
