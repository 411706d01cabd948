package gucx_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
)

// A worker that writes to the memory of another one. Between processes the address and
// the packed key travel by any means, such as a socket or a file.
func Example() {
	c := must(gucx.Open())
	defer c.Close()

	target := must(c.NewWorker(ucp.WorkerConfig{}))
	defer target.Close()
	mem := must(c.MemAlloc(4096))
	defer mem.Close()
	addr, packed := target.Address(), mem.Pack()
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = target.Serve(ctx) })
	defer serving.Wait()
	defer stop()

	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.NewEP(addr, ucp.EPConfig{}))
	key := must(ep.Unpack(packed))
	defer key.Close()
	if err := ep.PutWait(ctx, []byte("hello"), key.Addr(), key, nil); err != nil {
		log.Fatal(err)
	}
	if err := ep.FlushWait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mem.Bytes()[:5])
	// Output: hello
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
