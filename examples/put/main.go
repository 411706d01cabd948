// Command put writes into the memory of another worker and reads it back. It is
// the program in the README.
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
	c := must(gucx.Open()) // all transports, configured by the environment
	target := must(c.NewWorker(ucp.WorkerConfig{}))
	mem := must(c.MemAlloc(4096))
	l := must(target.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"board": mem}}))
	go target.Serve(ctx) // accepts connections; over tcp it also executes puts and gets

	w := must(c.NewWorker(ucp.WorkerConfig{})) // usually in another process
	peer := must(w.Dial(ctx, "tcp", l.Addr().String(), ucp.DialConfig{}))
	ep, key := peer.EP, peer.Keys["board"]
	check(ep.PutWait(ctx, []byte("hello, gucx"), key.Addr(), key, nil))
	check(ep.FlushWait(ctx)) // now it is in the target's memory

	back := make([]byte, 11)
	check(ep.GetWait(ctx, back, key.Addr(), key, nil))
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
