// Command atomics lets several workers increment a counter in the memory of a peer, and elect a
// leader there. The peer executes no code for that.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

const (
	counters = 3
	each     = 100

	// Offsets in the memory, in bytes.
	tickets = 0 // number of tickets that were assigned
	leader  = 8 // id of the leader; 0 if there is none
	wordLen = 8
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c := must(gucx.Open())
	defer c.Close()
	target := must(c.NewWorker(ucp.WorkerConfig{}))
	defer target.Close()
	mem := must(c.MemAlloc(2 * wordLen))
	defer mem.Close()
	l := must(target.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"words": mem}}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = target.Serve(ctx) })

	var running sync.WaitGroup
	leaders := make(chan uint64, counters)
	for id := range counters {
		running.Go(func() { leaders <- count(ctx, c, l.Addr().String(), uint64(id+1)) })
	}
	running.Wait()
	stop()
	serving.Wait()
	close(leaders)
	agree := true
	for id := range leaders {
		agree = agree && id == binary.NativeEndian.Uint64(mem.Bytes()[leader:])
	}
	fmt.Println(binary.NativeEndian.Uint64(mem.Bytes()[tickets:]), "tickets; all know who leads:", agree)
}

// count draws tickets, and returns the id of the leader. It is usually in another process.
func count(ctx context.Context, c *ucp.Context, addr string, id uint64) uint64 {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	peer := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{}))
	ep, key := peer.EP, peer.Keys["words"]
	seen := map[uint64]bool{}
	for range each {
		ticket := must(ep.AtomicFetchWait(ctx, uct.AtomicAdd, wordLen, 1, key.Addr()+tickets, key))
		if seen[ticket] {
			log.Fatalf("ticket %d twice", ticket)
		}
		seen[ticket] = true
	}
	// The first worker that reads 0 is the leader. The others get its id as the old value.
	if old := must(ep.AtomicCSwapWait(ctx, wordLen, 0, id, key.Addr()+leader, key)); old != 0 {
		return old
	}
	return id
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
