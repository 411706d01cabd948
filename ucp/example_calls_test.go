package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// two are two workers of this process with an endpoint from one to the other. Usually they are in two processes.
type two struct {
	ctx context.Context
	c   *ucp.Context
	w   *ucp.Worker // the caller's
	ep  *ucp.EP     // to peer

	peer *ucp.Worker
	mem  *ucp.Mem  // of the peer
	key  *ucp.RKey // of mem, for ep
}

// connected makes two workers, and a goroutine that serves the second one. It returns a function that closes all. If
// prepare is not nil, it is called before the goroutine starts.
func connected(prepare func(peer *ucp.Worker)) (*two, func()) {
	c, err := gucx.Open()
	check(err)
	w, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	peer, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	mem, err := c.MemAlloc(4096)
	check(err)
	ep, err := w.NewEP(peer.Address(), ucp.EPConfig{})
	check(err)
	key, err := ep.Unpack(mem.Pack())
	check(err)
	if prepare != nil {
		prepare(peer)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = peer.Serve(ctx) })
	return &two{ctx, c, w, ep, peer, mem, key}, func() {
		stop()
		serving.Wait()
		key.Close()
		check(errors.Join(w.Close(), peer.Close(), mem.Close(), c.Close()))
	}
}

// wait waits for a request, which is nil if the operation has completed at once.
func wait(ctx context.Context, r *ucp.Request, err error) {
	check(err)
	if r != nil {
		check(r.Wait(ctx))
	}
}

// Put returns a request if the buffer is still in use. After a flush the data is in the memory of the peer.
func ExampleEP_Put() {
	x, end := connected(nil)
	defer end()
	r, err := x.ep.Put([]byte("hello"), x.key.Addr(), x.key, nil)
	wait(x.ctx, r, err) // the buffer may be used again
	r, err = x.ep.Flush()
	wait(x.ctx, r, err) // the data is in the memory of the peer
	fmt.Printf("%s\n", x.mem.Bytes()[:5])
	// Output: hello
}

// The data of a Get has arrived when its request has completed.
func ExampleEP_Get() {
	x, end := connected(nil)
	defer end()
	copy(x.mem.Bytes(), "hello")
	buf := make([]byte, 5)
	r, err := x.ep.Get(buf, x.key.Addr(), x.key, nil)
	wait(x.ctx, r, err)
	fmt.Printf("%s\n", buf)
	// Output: hello
}

// A list gets several parts of the memory of a peer with one request.
func ExampleEP_GetList() {
	x, end := connected(nil)
	defer end()
	copy(x.mem.Bytes(), "hello")
	copy(x.mem.Bytes()[100:], "gucx")
	first, second := make([]byte, 5), make([]byte, 4)
	r, err := x.ep.GetList([]ucp.Transfer{
		{Buf: first, Addr: x.key.Addr(), Key: x.key},
		{Buf: second, Addr: x.key.Addr() + 100, Key: x.key},
	}, nil)
	wait(x.ctx, r, err)
	fmt.Printf("%s, %s\n", first, second)
	// Output: hello, gucx
}

// Several puts complete with one flush.
func ExampleEP_FlushWait() {
	x, end := connected(nil)
	defer end()
	for i, word := range []string{"one", "two"} {
		check(x.ep.PutImplicit([]byte(word), x.key.Addr()+uint64(3*i), x.key, nil))
	}
	check(x.ep.FlushWait(x.ctx))
	fmt.Printf("%s\n", x.mem.Bytes()[:6])
	// Output: onetwo
}

// Several processes can count in one word: each gets the value before its addition.
func ExampleEP_AtomicFetchWait() {
	x, end := connected(nil)
	defer end()
	for range 2 {
		before, err := x.ep.AtomicFetchWait(x.ctx, uct.AtomicAdd, 8, 10, x.key.Addr(), x.key)
		check(err)
		fmt.Println(before)
	}
	// Output:
	// 0
	// 10
}

// If the word has the expected value, it is replaced: here 7 by 9.
func ExampleEP_AtomicCSwapWait() {
	x, end := connected(nil)
	defer end()
	x.mem.Bytes()[0] = 7
	before, err := x.ep.AtomicCSwapWait(x.ctx, 8, 7, 9, x.key.Addr(), x.key)
	check(err)
	fmt.Println(before, x.mem.Bytes()[0])
	// Output: 7 9
}

// A message that refers to the data of a put needs a fence, unless the put notifies the peer itself: see EP.PutNotify.
func ExampleEP_Fence() {
	said := make(chan string, 1)
	var x *two
	x, end := connected(func(peer *ucp.Worker) {
		peer.OnActive(1, func(m *ucp.ActiveMessage) { said <- string(x.mem.Bytes()[:m.Data[0]]) })
	})
	defer end()
	check(x.ep.PutWait(x.ctx, []byte("hello"), x.key.Addr(), x.key, nil))
	check(x.ep.Fence())
	r, err := x.ep.SendActive(1, nil, []byte{5}, nil)
	wait(x.ctx, r, err)
	fmt.Println(<-said)
	// Output: hello
}

// The peer gets a word after the data of the put.
func ExampleEP_PutNotifyWait() {
	said := make(chan string, 1)
	var x *two
	x, end := connected(func(peer *ucp.Worker) {
		peer.OnNotify(func(_ *ucp.EP, length uint64) { said <- string(x.mem.Bytes()[:length]) })
	})
	defer end()
	check(x.ep.PutNotifyWait(x.ctx, []byte("hello"), x.key.Addr(), x.key, 5, nil))
	check(x.ep.FlushWait(x.ctx))
	fmt.Println(<-said)
	// Output: hello
}

// A request and its reply: the handler of the peer replies over the EP of the request.
func ExampleEP_SendActive() {
	const request, reply = 1, 2
	x, end := connected(func(peer *ucp.Worker) {
		peer.OnActive(request, func(m *ucp.ActiveMessage) {
			_, err := m.From.SendActive(reply, nil, append([]byte("you said "), m.Data...), nil)
			check(err)
		})
	})
	defer end()
	said := ""
	x.w.OnActive(reply, func(m *ucp.ActiveMessage) { said = string(m.Data) }) // m is valid until the handler returns
	r, err := x.ep.SendActive(request, nil, []byte("hello"), nil)
	wait(x.ctx, r, err)
	check(x.w.Until(x.ctx, func() bool { return said != "" }))
	fmt.Println(said)
	// Output: you said hello
}

// A handler that does not process a message at once keeps it, and releases it later.
func ExampleActiveMessage_Keep() {
	kept := make(chan *ucp.ActiveMessage, 1)
	x, end := connected(func(peer *ucp.Worker) {
		peer.OnActive(1, func(m *ucp.ActiveMessage) { kept <- m.Keep() })
	})
	r, err := x.ep.SendActive(1, []byte("header"), []byte("data"), nil)
	wait(x.ctx, r, err)
	m := <-kept
	fmt.Printf("%s, %s\n", m.Header, m.Data)
	end() // no other goroutine uses the peer from here on
	m.Release()
	// Output: header, data
}

// A receive with a mask of zero matches a message with any tag. A buffer that is too small gets the first bytes, and
// the receive fails with ErrTruncated.
func ExampleWorker_TagRecvWait() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	for tag, text := range []string{"zero", "one, which is long"} {
		r, err := self.TagSend(uint64(tag), []byte(text), nil)
		wait(x.ctx, r, err)
	}
	for range 2 {
		buf := make([]byte, 4)
		info, err := x.w.TagRecvWait(x.ctx, buf, 0, 0, nil)
		fmt.Printf("tag %d, %s, %v\n", info.Tag, buf, errors.Is(err, ucs.ErrTruncated))
	}
	// Output:
	// tag 0, zero, false
	// tag 1, one,, true
}

// A probe looks for an unexpected message, for example to allocate a buffer of its length.
func ExampleWorker_TagProbe() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	sent, err := self.TagSend(7, []byte("hello"), nil)
	wait(x.ctx, sent, err)
	var m *ucp.TagMessage
	check(x.w.Until(x.ctx, func() bool {
		m, _, _ = x.w.TagProbe(7, ^uint64(0), true) // true: no receive matches the message any more
		return m != nil
	}))
	buf := make([]byte, m.Info().Length)
	r, err := m.Recv(buf, nil, nil)
	wait(x.ctx, r, err)
	fmt.Printf("%s\n", buf)
	// Output: hello
}

// A synchronous send completes when the message has matched a receive.
func ExampleEP_TagSendSync() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	sent, err := self.TagSendSync(7, []byte("hello"), nil)
	check(err)
	for range 100 {
		x.w.Progress()
	}
	fmt.Println("before the receive:", sent.Done())
	_, err = x.w.TagRecvWait(x.ctx, make([]byte, 5), 7, ^uint64(0), nil)
	check(err)
	check(sent.Wait(x.ctx))
	fmt.Println("received")
	// Output:
	// before the receive: false
	// received
}

// A message from several buffers, which are not copied into one first.
func ExampleBuffers() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	r, err := self.TagSendData(1, ucp.Buffers([][]byte{[]byte("head"), []byte("tail")}), nil)
	wait(x.ctx, r, err)
	buf := make([]byte, 8)
	_, err = x.w.TagRecvWait(x.ctx, buf, 1, ^uint64(0), nil)
	check(err)
	fmt.Printf("%s\n", buf)
	// Output: headtail
}

// The handler of an active message receives a header and a body into two buffers.
func ExampleActiveMessage_RecvData() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	head, body := make([]byte, 4), make([]byte, 4)
	arrived, received := false, (*ucp.Request)(nil)
	x.w.OnActive(1, func(m *ucp.ActiveMessage) {
		var err error
		received, err = m.RecvData(ucp.Buffers([][]byte{head, body}), nil)
		check(err)
		arrived = true
	})
	r, err := self.SendActive(1, nil, []byte("headbody"), nil)
	wait(x.ctx, r, err)
	check(x.w.Until(x.ctx, func() bool { return arrived }))
	wait(x.ctx, received, nil) // the data may have been at the sender until now
	fmt.Printf("%s, %s\n", head, body)
	// Output: head, body
}

// A stream is sent from, and received into, several buffers.
func ExampleEP_StreamSendData() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	r, err := self.StreamSendData(ucp.Buffers([][]byte{[]byte("hello, "), []byte("gucx")}), nil)
	wait(x.ctx, r, err)
	var in *ucp.EP
	check(x.w.Until(x.ctx, func() bool { in = x.w.StreamReady(); return in != nil }))
	first, second, n := make([]byte, 5), make([]byte, 6), 0
	r, err = in.StreamRecvData(ucp.Buffers([][]byte{first, second}), true, &n, nil) // true: fills both
	wait(x.ctx, r, err)
	fmt.Printf("%s|%s\n", first, second)
	// Output: hello|, gucx
}

// A stream has no message boundaries: a receive gets the bytes that have arrived.
func ExampleEP_StreamSendWait() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	for _, text := range []string{"hello, ", "gucx"} {
		_, err := self.StreamSendWait(x.ctx, []byte(text))
		check(err)
	}
	var in *ucp.EP
	check(x.w.Until(x.ctx, func() bool { in = x.w.StreamReady(); return in != nil }))
	got, n := make([]byte, 11), 0
	r, err := in.StreamRecv(got, true, &n, nil) // true: completes when got is full
	wait(x.ctx, r, err)
	fmt.Printf("%s\n", got[:n])
	// Output: hello, gucx
}

// Cancel of a receive that no message has matched completes it with ErrCanceled.
func ExampleRequest_Cancel() {
	x, end := connected(nil)
	defer end()
	r, err := x.w.TagRecv(make([]byte, 8), 1, ^uint64(0), nil, nil)
	check(err)
	fmt.Println(r.Cancel(), errors.Is(r.Wait(x.ctx), ucs.ErrCanceled))
	// Output: true true
}

// A wait ends when its context is canceled. The request continues, and its buffer is in use until it completes.
func ExampleRequest_Wait() {
	x, end := connected(nil)
	defer end()
	r, err := x.w.TagRecv(make([]byte, 8), 1, ^uint64(0), nil, nil)
	check(err)
	ctx, cancel := context.WithTimeout(x.ctx, time.Millisecond)
	defer cancel()
	fmt.Println(errors.Is(r.Wait(ctx), context.DeadlineExceeded))
	r.Cancel()
	fmt.Println(errors.Is(r.Wait(x.ctx), ucs.ErrCanceled))
	// Output:
	// true
	// true
}

// WaitAny returns the receive that completes first.
func ExampleWaitAny() {
	x, end := connected(nil)
	defer end()
	self, err := x.w.NewEP(x.w.Address(), ucp.EPConfig{})
	check(err)
	var recvs []*ucp.Request
	for tag := range uint64(3) {
		r, err := x.w.TagRecv(make([]byte, 8), tag, ^uint64(0), nil, nil)
		check(err)
		recvs = append(recvs, r)
	}
	sent, err := self.TagSend(1, []byte("hello"), nil)
	wait(x.ctx, sent, err)
	i, err := ucp.WaitAny(x.ctx, recvs...)
	check(err)
	fmt.Println(i)
	for j, r := range recvs {
		if j != i {
			r.Cancel()
			_ = r.Wait(x.ctx) // ErrCanceled
		}
	}
	// Output: 1
}

// Goroutines share one worker: Run starts an operation and waits for it.
func ExampleWorker_Share() {
	x, end := connected(nil)
	defer end()
	shared := x.w.Share()
	var writers sync.WaitGroup
	for i := range uint64(3) {
		writers.Go(func() {
			buf := []byte{byte(i)}
			check(shared.Run(x.ctx, func() (*ucp.Request, error) { return x.ep.Put(buf, x.key.Addr()+i, x.key, nil) }))
			check(shared.Run(x.ctx, x.ep.Flush))
		})
	}
	writers.Wait()
	fmt.Println(x.mem.Bytes()[:3])
	// Output: [0 1 2]
}

// Memory of the program can be registered for peers, here read only.
func ExampleContext_MemMapAccess() {
	x, end := connected(nil)
	defer end()
	mem, err := x.c.MemMapAccess([]byte("read only"), uct.AccessRemoteRead)
	check(err)
	defer mem.Close()
	key, err := x.ep.Unpack(mem.Pack())
	check(err)
	defer key.Close()
	buf := make([]byte, 9)
	check(x.ep.GetWait(x.ctx, buf, key.Addr(), key, nil))
	err = x.ep.PutWait(x.ctx, buf, key.Addr(), key, nil)
	fmt.Printf("%s, %v\n", buf, errors.Is(err, ucs.ErrRemoteAccess))
	// Output: read only, true
}

// CloseFlush completes the operations that were started before, and then disconnects.
func ExampleEP_CloseWait() {
	x, end := connected(nil)
	defer end()
	check(x.ep.PutWait(x.ctx, []byte("hello"), x.key.Addr(), x.key, nil))
	check(x.ep.CloseWait(x.ctx, ucp.CloseFlush))
	_, err := x.ep.TagSend(1, nil, nil)
	fmt.Printf("%s, %v\n", x.mem.Bytes()[:5], errors.Is(err, ucs.ErrClosed))
	// Output: hello, true
}
