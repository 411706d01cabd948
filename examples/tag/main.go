// Command tag collects tagged messages of several senders. The upper half of a tag says
// what a message is and the lower half who sent it, so that a receive can name a kind of
// message and leave the sender open.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
)

// senders is how many there are.
const senders = 3

// Kinds of messages.
const (
	kindText   = 1 // of any length
	kindNumber = 2 // 8 bytes, little endian
)

// Masks of receives: the bits of a tag that have to agree.
const (
	anySender = uint64(0xffff_ffff) << 32
	exact     = ^uint64(0)
)

func tagOf(kind, sender int) uint64 { return uint64(kind)<<32 | uint64(sender) }

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c := must(gucx.Open())
	defer c.Close()
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	l := must(w.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{}))

	var running sync.WaitGroup
	for id := range senders {
		running.Go(func() { send(ctx, c, l.Addr().String(), id) })
	}
	collect(ctx, w)
	go func() { running.Wait(); stop() }()
	_ = w.Serve(ctx) // the senders' last operations may need this side
}

// send is a sender; it would be in another process.
func send(ctx context.Context, c *ucp.Context, addr string, id int) {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP

	// The last one is too long to be sent before there is a receive for it: it is announced,
	// and its data follows. The calls are the same.
	text := bytes.Repeat([]byte("gucx "), 1+id*10_000)
	r := must(ep.TagSend(tagOf(kindText, id), text, nil))
	number := binary.LittleEndian.AppendUint64(nil, uint64(id*id))
	check(ep.TagSendSyncWait(ctx, tagOf(kindNumber, id), number, nil)) // returns when it is received
	check(r.Wait(ctx))                                                 // the text has gone
	check(ep.CloseWait(ctx, ucp.CloseFlush))
}

// collect takes a number and a text from each sender.
func collect(ctx context.Context, w *ucp.Worker) {
	var lengths [senders]int
	sum := uint64(0)
	for range senders {
		var number [8]byte
		info := must(w.TagRecvWait(ctx, number[:], tagOf(kindNumber, 0), anySender, nil))
		sum += binary.LittleEndian.Uint64(number[:])

		// The sender's text was sent before and messages of an EP keep their order, so it is
		// here, or was announced. A probe tells how long it is.
		sender := int(uint32(info.Tag))
		m, text, ok := w.TagProbe(tagOf(kindText, sender), exact, true)
		if !ok || sender >= senders {
			log.Fatalf("no text of sender %d", sender)
		}
		buf := make([]byte, text.Length)
		r, err := m.Recv(buf, nil, nil)
		check(err)
		check(r.Wait(ctx)) // its data may have yet to come
		lengths[sender] = len(buf)
	}
	fmt.Println("numbers:", sum, "texts:", lengths)
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
