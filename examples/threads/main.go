// Command threads writes from several goroutines, each with a worker of its own.
// How the workers share the InfiniBand device is one setting:
//
//	GUCX_TLS=ib GUCX_IB_ENDPOINTS=MPI-everywhere go run ./examples/threads
//
// and 2xDynamic, Dynamic, SharedDynamic or Static. With MPI+threads there is one
// worker, and the goroutines take turns with it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

const (
	threads = 4
	puts    = 1000
)

func main() {
	ctx := context.Background()
	var cfg ucp.Config
	check(config.FromEnv(os.Environ(), cfg.Table()))
	remote := must(ucp.NewContext(cfg, all.Components()...)) // would be another process
	target := must(remote.NewWorker(ucp.WorkerConfig{}))
	mem := must(remote.MemAlloc(threads))
	addr, packed := target.Address(), mem.Pack() // before others have the target
	go target.Serve(ctx)

	c := must(ucp.NewContext(cfg, all.Components()...))
	var running sync.WaitGroup
	for _, s := range seats(c, cfg.IBEndpoints == uct.EndpointsMPIThreads) {
		running.Go(func() {
			var ep *ucp.EP
			var key *ucp.RKey
			s.worker.Do(func(w *ucp.Worker) {
				ep = must(w.NewEP(addr, ucp.EPConfig{}))
				key = must(ep.Unpack(packed))
			})
			for i := range puts {
				value := []byte{byte(i)}
				check(s.worker.Run(ctx, func() (*ucp.Request, error) {
					return ep.Put(value, key.Addr()+uint64(s.thread), key, nil)
				}))
			}
			check(s.worker.Run(ctx, ep.Flush))
		})
	}
	running.Wait()
	fmt.Printf("%v: %d threads wrote %d\n", cfg.IBEndpoints, threads, mem.Bytes())
}

// seat is where a thread sits.
type seat struct {
	thread int
	worker *ucp.SharedWorker
}

// seats makes a worker for each thread, or one for all.
func seats(c *ucp.Context, shared bool) (list []seat) {
	var w *ucp.SharedWorker
	for i := range threads {
		if i == 0 || !shared {
			w = must(c.NewWorker(ucp.WorkerConfig{})).Share()
		}
		list = append(list, seat{i, w})
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
