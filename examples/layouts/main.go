// Command layouts sends a message whose data is in several pieces, and unpacks it into a
// structure of the receiver. The program needs no intermediate buffer.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

const (
	tag   = 1
	exact = ^uint64(0)

	rows    = 1000
	columns = 4
	wordLen = 8
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c := must(gucx.Open())
	defer c.Close()
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	l := must(w.Listen(ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{}))
	var running sync.WaitGroup
	running.Go(func() { send(ctx, c, l.Addr().String()) })

	// The receiver stores the numbers by column; the message contains row after row.
	t := &table{}
	r := must(w.TagRecvData(ucp.To(t), tag, exact, nil, nil))
	check(r.Wait(ctx))
	go func() { running.Wait(); stop() }()
	_ = w.Serve(ctx) // the sender's last operations may need this side
	fmt.Println("row 7:", t.columns[0][7], t.columns[1][7], t.columns[2][7], t.columns[3][7])
}

// send sends the rows without copying them to one buffer. It is usually in another process.
func send(ctx context.Context, c *ucp.Context, addr string) {
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP
	pieces := make([][]byte, rows)
	for i := range pieces {
		for k := range columns {
			pieces[i] = binary.LittleEndian.AppendUint64(pieces[i], uint64(10*i+k))
		}
	}
	r := must(ep.TagSendData(tag, ucp.Buffers(pieces), nil))
	check(r.Wait(ctx)) // gucx uses the pieces until then
	check(ep.CloseWait(ctx, ucp.CloseFlush))
}

// table unpacks a message as it arrives. It implements ucp.Unpacker.
type table struct {
	columns [columns][rows]uint64
	part    [wordLen]byte // the first bytes of a word that has arrived in part
}

// Length is the maximum length of a message.
func (t *table) Length() int { return columns * rows * wordLen }

// UnpackAt unpacks the bytes of the message from off on. gucx passes them in order.
func (t *table) UnpackAt(off int, src []byte) error {
	if len(src) > t.Length()-off {
		return ucs.ErrTruncated
	}
	for len(src) > 0 {
		n := copy(t.part[off%wordLen:], src)
		if (off+n)%wordLen == 0 {
			word := off / wordLen
			t.columns[word%columns][word/columns] = binary.LittleEndian.Uint64(t.part[:])
		}
		off, src = off+n, src[n:]
	}
	return nil
}

// Finish is called once, when the message is complete or has failed.
func (t *table) Finish(err error) error { return err }

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
