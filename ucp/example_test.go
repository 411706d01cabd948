package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Two workers of one process: the target serves, the other one writes to its memory and reads it back. A program may
// exchange the address and the packed key by any means, such as Worker.Dial.
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
	check(ep.FlushWait(ctx))                                      // the data is in the memory of the target now
	got := make([]byte, 5)
	check(ep.GetWait(ctx, got, key.Addr(), key, nil))
	old, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 42, key.Addr()+8, key)
	check(err)
	fmt.Printf("%s, %d before and %d after\n", got, old, mem.Bytes()[8])
	// Output: hello, 0 before and 42 after
}

// A message is received by its tag: here the low half is the subject, and the receiver reads the sender from the high
// half.
func ExampleEP_TagSend() {
	c, err := gucx.Open()
	check(err)
	defer c.Close()
	sender, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	defer sender.Close()
	receiver, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	defer receiver.Close()
	ep, err := sender.NewEP(receiver.Address(), ucp.EPConfig{})
	check(err)

	const about, mask = 7, 1<<32 - 1
	buf, info := make([]byte, 16), ucp.TagInfo{}
	recv, err := receiver.TagRecv(buf, about, mask, &info, nil)
	check(err)
	sent, err := ep.TagSend(42<<32|about, []byte("hello"), nil)
	check(err)
	for recv != nil && !recv.Done() || sent != nil && !sent.Done() { // this program owns both workers
		sender.Progress()
		receiver.Progress()
	}
	check(ucp.WaitAll(context.Background(), recv))
	check(ucp.WaitAll(context.Background(), sent))
	fmt.Printf("%s, from %d\n", buf[:info.Length], info.Tag>>32)
	// Output: hello, from 42
}

// A worker listens, with memory that it publishes by name, and another one dials it, usually from another process. Here
// both are in one process.
func ExampleWorker_Dial() {
	ctx, stop := context.WithCancel(context.Background())
	c, err := gucx.Open()
	check(err)
	defer c.Close()
	mem, err := c.MemAlloc(4096)
	check(err)
	defer mem.Close()

	server, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	defer server.Close()
	l, err := server.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{ // or "unix", "@name"
		Keys:   map[string]*ucp.Mem{"board": mem},
		Accept: func(r *ucp.ConnRequest) bool { return string(r.Private) == "let me in" },
		OnPeer: func(p *ucp.Peer) { fmt.Println("a peer has connected") },
		OnPeerGone: func(p *ucp.Peer, err error) {
			fmt.Println("it has disconnected:", errors.Is(err, ucs.ErrPeerClosed))
			stop()
		},
	})
	check(err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx) })
	defer serving.Wait()

	w, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	defer w.Close()
	peer, err := w.Dial(ctx, "tcp", l.Addr().String(), ucp.DialConfig{Private: []byte("let me in")})
	check(err)
	key := peer.Keys["board"]
	check(peer.EP.PutWait(ctx, []byte("hello"), key.Addr(), key, nil))
	check(peer.EP.FlushWait(ctx))
	fmt.Printf("%s\n", mem.Bytes()[:5])
	key.Close()
	check(peer.EP.CloseWait(context.Background(), ucp.CloseFlush))
	// Output:
	// a peer has connected
	// hello
	// it has disconnected: true
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
