// Command stream copies bytes over the stream of an endpoint. A stream has no message boundaries:
// the sender first sends the number of bytes, and the receiver receives them in pieces of any
// size.
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

	// OnPeer runs inside Progress, where the program must not wait. So it ends Serve.
	var peer *ucp.Peer
	come, arrive := context.WithCancel(ctx)
	l := must(w.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{
		OnPeer: func(p *ucp.Peer) { peer = p; arrive() },
	}))
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, c, l.Addr().String()) }) // usually in another process
	_ = w.Serve(come)
	receive(ctx, peer.EP)
	go func() { sending.Wait(); stop() }()
	_ = w.Serve(ctx) // the reply may need progress of this side
}

// send sends 1 MiB and waits for its checksum.
func send(ctx context.Context, c *ucp.Context, addr string) {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP

	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	must(ep.StreamSendWait(ctx, head))
	must(ep.StreamSendWait(ctx, data)) // waits if the receiver reads slowly

	var sum [4]byte
	readFull(ctx, ep, sum[:])
	fmt.Println("checksums agree:", binary.LittleEndian.Uint32(sum[:]) == crc32.ChecksumIEEE(data))
}

// receive receives data of any length, and replies with its checksum.
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

// readFull receives len(buf) bytes.
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
