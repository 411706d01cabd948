// Command tag receives tagged messages from several senders. The upper half of a tag is the
// type of the message, the lower half is the sender. So a receive can match messages of one
// type from any sender.
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

// senders is the number of senders.
const senders = 3

// Types of messages.
const (
	kindText   = 1 // text of any length
	kindNumber = 2 // number of 8 bytes, little endian
)

// Masks of receives: the bits of a tag that must be equal.
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

// send is a sender, usually in another process.
func send(ctx context.Context, c *ucp.Context, addr string, id int) {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP

	// The last text is so long that it uses rendezvous: its data follows when a receive has
	// matched. The calls are the same.
	text := bytes.Repeat([]byte("gucx "), 1+id*10_000)
	r := must(ep.TagSend(tagOf(kindText, id), text, nil))
	number := binary.LittleEndian.AppendUint64(nil, uint64(id*id))
	check(ep.TagSendSyncWait(ctx, tagOf(kindNumber, id), number, nil)) // returns when a receive has matched
	check(r.Wait(ctx))                                                 // the text was sent
	check(ep.CloseWait(ctx, ucp.CloseFlush))
}

// collect receives a number and a text from each sender.
func collect(ctx context.Context, w *ucp.Worker) {
	var lengths [senders]int
	sum := uint64(0)
	for range senders {
		var number [8]byte
		info := must(w.TagRecvWait(ctx, number[:], tagOf(kindNumber, 0), anySender, nil))
		sum += binary.LittleEndian.Uint64(number[:])

		// The sender sent its text before the number, and messages of an EP arrive in order. So the
		// text, or its RTS, has arrived. A probe returns its length.
		sender := int(uint32(info.Tag))
		m, text, ok := w.TagProbe(tagOf(kindText, sender), exact, true)
		if !ok || sender >= senders {
			log.Fatalf("no text of sender %d", sender)
		}
		buf := make([]byte, text.Length)
		r, err := m.Recv(buf, nil, nil)
		check(err)
		check(r.Wait(ctx)) // a part of the data may not have arrived yet
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
