// Command active requests sums from a server, by active messages. A request runs a handler
// at the server, and the reply runs a handler at the client. A request may have any length; the
// data of a large one remains at the client until the server has a buffer for it.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
)

// Ids of active messages. Headers are numbers of 8 bytes, little endian.
const (
	idRequest = 1 // header: number of the request; data: bytes to add up
	idReply   = 2 // header: number of the request, and the sum; no data
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c := must(gucx.Open())
	defer c.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()

	s := &server{ctx: ctx, w: must(c.NewWorker(ucp.WorkerConfig{})).Share()}
	defer s.w.Close()
	addr := s.listen()
	serving.Go(func() { _ = s.w.Serve(ctx) })

	cl := dial(ctx, c, addr) // usually in another process
	defer cl.w.Close()
	serving.Go(func() { _ = cl.w.Serve(ctx) })

	var calls sync.WaitGroup
	lengths := []int{10, 1000, 1 << 20}
	sums := make([]uint64, len(lengths))
	for i, n := range lengths {
		calls.Go(func() { sums[i] = must(cl.sum(ctx, bytes.Repeat([]byte{1}, n))) })
	}
	calls.Wait()
	fmt.Println("sums:", sums)
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
