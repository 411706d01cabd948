package ucp_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// Two workers of one process: the target only serves, the other one writes to its
// memory and reads it back. Between processes the address and the packed key travel
// by any means, such as a socket or a file.
func Example() {
	c, err := gucx.Open() // or NewContext, with transports and configuration of your choice
	check(err)
	defer c.Close()

	target, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	defer target.Close()
	mem, err := c.MemAlloc(4096)
	check(err)
	defer mem.Close()
	addr, packed := target.Address(), mem.Pack() // what the peer needs

	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = target.Serve(ctx) }) // the target's own goroutine
	defer serving.Wait()
	defer stop()

	w, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	defer w.Close()
	ep, err := w.NewEP(addr, ucp.EPConfig{}) // sends nothing yet
	check(err)
	key, err := ep.Unpack(packed)
	check(err)
	defer key.Close()

	check(ep.PutWait(ctx, []byte("hello"), key.Addr(), key, nil)) // connects
	check(ep.FlushWait(ctx))                                      // it is there now
	got := make([]byte, 5)
	check(ep.GetWait(ctx, got, key.Addr(), key, nil))
	old, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 42, key.Addr()+8, key)
	check(err)
	fmt.Printf("%s, %d before and %d after\n", got, old, mem.Bytes()[8])
	// Output: hello, 0 before and 42 after
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
