// Command threads writes from several goroutines, each with its own worker.
// One setting determines how the workers share the InfiniBand device:
//
//	GUCX_TLS=ib GUCX_IB_ENDPOINTS=MPI-everywhere go run ./examples/threads
//
// or 2xDynamic, Dynamic, SharedDynamic or Static. With MPI+threads there is one
// worker, and the goroutines use it in turns.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/ib"
)

const (
	threads = 4
	puts    = 1000
)

func main() {
	ctx := context.Background()
	cfg := must(gucx.FromEnv(os.Environ(), gucx.Own{}))
	open := func() *ucp.Context { return must(cfg.Open()) }

	remote := open() // usually another process
	target := must(remote.NewWorker(ucp.WorkerConfig{}))
	mem := must(remote.MemAlloc(threads))
	l := must(target.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"bytes": mem}}))
	go target.Serve(ctx)

	var running sync.WaitGroup
	for i, worker := range workers(open, cfg.UCT.IB.Endpoints) {
		running.Go(func() {
			peer := must(worker.Dial(ctx, "tcp", l.Addr().String(), ucp.DialConfig{}))
			ep, key := peer.EP, peer.Keys["bytes"]
			for n := range puts {
				value := []byte{byte(n)}
				check(worker.Run(ctx, func() (*ucp.Request, error) {
					return ep.Put(value, key.Addr()+uint64(i), key, nil)
				}))
			}
			check(worker.Run(ctx, ep.Flush))
		})
	}
	running.Wait()
	fmt.Printf("%v: %d threads wrote %d\n", cfg.UCT.IB.Endpoints, threads, mem.Bytes())
}

// workers returns the workers of the threads: one per context, several of one context, or one for
// all threads.
func workers(open func() *ucp.Context, category ib.Endpoints) (list []*ucp.SharedWorker) {
	var c *ucp.Context
	var w *ucp.SharedWorker
	for i := range threads {
		if i == 0 || category == ib.EndpointsMPIEverywhere {
			c = open()
		}
		if i == 0 || category != ib.EndpointsMPIThreads {
			w = must(c.NewWorker(ucp.WorkerConfig{})).Share()
		}
		list = append(list, w)
	}
	return list
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
