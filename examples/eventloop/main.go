// Command eventloop runs its own event loop, which waits with epoll for a socket and for the descriptor of a worker. The
// loop receives lines from the socket and messages from a peer, and uses no CPU while there is neither.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

const (
	idCount = 1
	sends   = 3
)

func main() {
	c := must(gucx.Open())
	defer c.Close()
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	sum, ended := 0, false
	w.OnActive(idCount, func(m *ucp.ActiveMessage) { sum += int(binary.LittleEndian.Uint64(m.Data)) })
	l := must(w.Listen(context.Background(), "tcp", "127.0.0.1:0", ucp.ListenConfig{
		OnPeerGone: func(*ucp.Peer, error) { ended = true },
	}))

	socket := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0))
	var peers sync.WaitGroup
	peers.Go(func() { send(c, l.Addr().String()) }) // usually in another process
	peers.Go(func() { must(unix.Write(socket[1], []byte("hello"))) })

	loop := newLoop(w, socket[0])
	text := ""
	for !ended || text == "" {
		if loop.next() { // the socket is readable
			var buf [64]byte
			text += string(buf[:must(unix.Read(socket[0], buf[:]))])
		}
	}
	peers.Wait()
	fmt.Println("socket:", text, "peer:", sum)
	check(unix.Close(loop.epoll))
	check(unix.Close(socket[0]))
	check(unix.Close(socket[1]))
}

// send sends the numbers from 1 on.
func send(c *ucp.Context, addr string) {
	ctx := context.Background()
	w := must(c.NewWorker(ucp.WorkerConfig{}))
	defer w.Close()
	ep := must(w.Dial(ctx, "tcp", addr, ucp.DialConfig{})).EP
	for i := range sends {
		r := must(ep.SendActive(idCount, nil, binary.LittleEndian.AppendUint64(nil, uint64(i+1)), nil))
		check(r.Wait(ctx))
	}
	check(ep.CloseWait(ctx, ucp.CloseFlush))
}

// loop waits for a worker and for a socket.
type loop struct {
	w             *ucp.Worker
	epoll, socket int
}

func newLoop(w *ucp.Worker, socket int) *loop {
	l := &loop{w: w, epoll: must(unix.EpollCreate1(unix.EPOLL_CLOEXEC)), socket: socket}
	for _, fd := range []int{must(w.FD()), socket} {
		check(unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
	}
	return l
}

// next makes progress, or waits if there is nothing to do. It reports whether the socket is readable.
func (l *loop) next() bool {
	if l.w.Progress() > 0 {
		return false // callbacks may have completed what the caller waits for
	}
	wait := 0
	switch err := l.w.Arm(); err {
	case nil:
		wait = -1 // until a descriptor is readable
	case ucs.ErrBusy: // there may be more to do: poll the socket, then make progress again
	default:
		log.Fatal(err)
	}
	var events [2]unix.EpollEvent
	n, err := unix.EpollWait(l.epoll, events[:], wait)
	if err != nil && err != unix.EINTR {
		log.Fatal(err)
	}
	for _, e := range events[:max(n, 0)] {
		if int(e.Fd) == l.socket {
			return true
		}
	}
	return false
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
