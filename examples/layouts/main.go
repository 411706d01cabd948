// Command layouts sends a message whose data lies in several pieces, and receives it into a
// structure of its own, without a buffer in between that the program has to have.
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

	// The receiver has the numbers as columns; the message has row after row.
	t := &table{}
	r := must(w.TagRecvData(ucp.To(t), tag, exact, nil, nil))
	check(r.Wait(ctx))
	go func() { running.Wait(); stop() }()
	_ = w.Serve(ctx) // the sender's last operations may need this side
	fmt.Println("row 7:", t.columns[0][7], t.columns[1][7], t.columns[2][7], t.columns[3][7])
}

// send sends each row from where it lies. It would be in another process.
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
	check(r.Wait(ctx)) // the pieces are gucx's until then
	check(ep.CloseWait(ctx, ucp.CloseFlush))
}

// table takes a message apart as it comes. It implements ucp.Unpacker.
type table struct {
	columns [columns][rows]uint64
	part    [wordLen]byte // of a word that has not come whole
}

// Length is the longest message that fits.
func (t *table) Length() int { return columns * rows * wordLen }

// UnpackAt takes bytes of the message from off on, which come in order.
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

// Finish is told the end.
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
