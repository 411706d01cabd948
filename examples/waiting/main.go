// Command waiting starts many operations and shows all forms of waiting: WaitAny, WaitAll,
// callbacks with Progress, and cancellation.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

const (
	exact   = ^uint64(0)
	parts   = 4
	never   = 99 // a tag that is never sent
	partLen = 100_000
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c := must(gucx.Open())
	defer c.Close()
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	l := must(w.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{}))
	var running sync.WaitGroup
	running.Go(func() { send(ctx, c, l.Addr().String()) })

	first := waitAny(ctx, w)
	told := waitByCallback(w)
	canceled := canceled(w)
	go func() { running.Wait(); stop() }()
	_ = w.Serve(ctx) // the sender's last operations may need this side
	fmt.Println("any:", first, "told:", told, "canceled:", canceled)
}

// send sends all parts twice. It is usually in another process.
func send(ctx context.Context, c *ucp.Context, addr string) {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP
	for range 2 {
		var reqs []*ucp.Request
		for i := range parts {
			reqs = append(reqs, must(ep.TagSend(uint64(i), make([]byte, partLen), nil)))
		}
		check(ucp.WaitAll(ctx, reqs...)) // a nil request is complete
	}
	check(ep.CloseWait(ctx, ucp.CloseFlush))
}

// waitAny receives the parts in the order in which they arrive, and returns their number.
func waitAny(ctx context.Context, w *ucp.Worker) (n int) {
	var reqs []*ucp.Request
	for i := range parts {
		r := must(w.TagRecv(make([]byte, partLen), uint64(i), exact, nil, nil))
		if r == nil {
			n++ // the part had already arrived
			continue
		}
		reqs = append(reqs, r)
	}
	for len(reqs) > 0 {
		i := must(ucp.WaitAny(ctx, reqs...))
		reqs = append(reqs[:i], reqs[i+1:]...) // WaitAny has released it
		n++
	}
	return n
}

// waitByCallback receives the parts again. Progress calls OnDone for each.
func waitByCallback(w *ucp.Worker) (n int) {
	p := &ucp.OpParams{OnDone: func(err error) {
		check(err)
		n++
	}}
	for i := range parts {
		r := must(w.TagRecv(make([]byte, partLen), uint64(i), exact, nil, p))
		if r == nil {
			n++ // no request, no callback
		} else {
			r.Release() // OnDone is called nevertheless
		}
	}
	for n < parts {
		w.Progress() // the program could also do other work here
	}
	return n
}

// canceled cancels a receive for which no message arrives.
func canceled(w *ucp.Worker) bool {
	r := must(w.TagRecv(make([]byte, 8), never, exact, nil, nil))
	if !r.Cancel() {
		log.Fatal("a message came")
	}
	_, err := r.Test()
	return errors.Is(err, ucs.ErrCanceled)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
