// Command stream copies bytes over the stream of an endpoint. A stream has no messages: the
// sender says first how many bytes will come, and the receiver takes them in pieces of its
// own size.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c := must(gucx.Open())
	defer c.Close()
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()

	// The peer is told of inside Progress, where nothing may wait for it: it ends the Serve.
	var peer *ucp.Peer
	come, arrive := context.WithCancel(ctx)
	l := must(w.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{
		OnPeer: func(p *ucp.Peer) { peer = p; arrive() },
	}))
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, c, l.Addr().String()) }) // would be in another process
	_ = w.Serve(come)
	receive(ctx, peer.EP)
	go func() { sending.Wait(); stop() }()
	_ = w.Serve(ctx) // the answer may need this side to arrive
}

// send sends a megabyte and waits for its checksum.
func send(ctx context.Context, c *ucp.Context, addr string) {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP

	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	must(ep.StreamSendWait(ctx, head))
	must(ep.StreamSendWait(ctx, data)) // the receiver holds it back, if it reads slowly

	var sum [4]byte
	readFull(ctx, ep, sum[:])
	fmt.Println("checksums agree:", binary.LittleEndian.Uint32(sum[:]) == crc32.ChecksumIEEE(data))
}

// receive takes what comes, whatever its length, and answers with the checksum.
func receive(ctx context.Context, ep *ucp.EP) {
	var head [8]byte
	readFull(ctx, ep, head[:])
	left := binary.LittleEndian.Uint64(head[:])
	sum := crc32.NewIEEE()
	for buf := make([]byte, 8<<10); left > 0; {
		n := must(ep.StreamRecvWait(ctx, buf[:min(left, uint64(len(buf)))]))
		sum.Write(buf[:n])
		left -= uint64(n)
	}
	must(ep.StreamSendWait(ctx, binary.LittleEndian.AppendUint32(nil, sum.Sum32())))
}

// readFull receives as much as buf has room for.
func readFull(ctx context.Context, ep *ucp.EP, buf []byte) {
	for len(buf) > 0 {
		buf = buf[must(ep.StreamRecvWait(ctx, buf)):]
	}
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
