// Command put writes into the memory of another worker and reads it back: the
// program that the README shows.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
)

func main() {
	ctx := context.Background()
	c := must(gucx.Open()) // transports, devices and log as the environment says
	target := must(c.NewWorker(ucp.WorkerConfig{}))
	mem := must(c.MemAlloc(4096))
	go target.Serve(ctx) // answers the connection; one-sided operations need nobody

	w := must(c.NewWorker(ucp.WorkerConfig{}))
	ep := must(w.NewEP(target.Address(), ucp.EPConfig{})) // sends nothing yet
	key := must(ep.Unpack(mem.Pack()))                    // bound to a transport once
	check(ep.PutWait(ctx, []byte("hello, gucx"), mem.Addr(), key, nil))
	check(ep.FlushWait(ctx)) // now it is in the target's memory

	back := make([]byte, 11)
	check(ep.GetWait(ctx, back, mem.Addr(), key, nil))
	fmt.Printf("%s\n", back)
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
