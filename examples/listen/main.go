// Command listen shows how processes find each other. One process serves memory, and others write a line
// into it. The server prints which peers connect and disconnect.
//
//	go run ./examples/listen serve @board
//	go run ./examples/listen write @board ann "good morning"
//
// The address is an abstract unix socket, which only processes of the same user may connect to.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// lineLen is the maximum length of a line in bytes.
const lineLen = 64

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "serve":
		check(serve(ctx, args[1], func(line string) { fmt.Println(line) }))
	case len(args) == 4 && args[0] == "write":
		check(write(ctx, args[1], args[2], args[3]))
	default:
		log.Fatal("usage: listen serve ADDRESS, or listen write ADDRESS NAME LINE, with a unix socket as address: @board")
	}
}

// serve accepts peers until ctx is done, and prints events.
func serve(ctx context.Context, address string, say func(line string)) (err error) {
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	board, err := c.MemAlloc(lineLen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, board.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }() // peers are notified
	_, err = w.Listen(ctx, "unix", address, ucp.ListenConfig{
		Keys:   map[string]*ucp.Mem{"board": board},
		Accept: welcome,
		OnPeer: func(p *ucp.Peer) { say(fmt.Sprintf("%s comes", p.Private)) },
		OnPeerGone: func(p *ucp.Peer, err error) {
			if errors.Is(err, ucs.ErrPeerClosed) { // everything that it flushed has arrived
				say(fmt.Sprintf("%s has written: %q", p.Private, bytes.TrimRight(board.Bytes(), "\x00")))
			}
			clear(board.Bytes())
		},
	})
	if err != nil {
		return err
	}
	say("listening")
	if err := w.Serve(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// welcome rejects peers without a name.
func welcome(r *ucp.ConnRequest) bool {
	if len(r.Private) > 0 {
		return true
	}
	return r.Answer([]byte("a name, please")) != nil
}

// write writes a line under a name.
func write(ctx context.Context, address, name, line string) (err error) {
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	peer, err := w.Dial(ctx, "unix", address, ucp.DialConfig{Private: []byte(name)})
	var rejected *ucp.RejectedError
	if errors.As(err, &rejected) {
		return fmt.Errorf("the server says: %s", rejected.Private)
	}
	if err != nil {
		return err
	}
	key := peer.Keys["board"]
	defer key.Close()
	if err := peer.EP.PutWait(ctx, []byte(line), key.Addr(), key, nil); err != nil {
		return err // for example if the line is longer than the memory of the key
	}
	return peer.EP.CloseWait(ctx, ucp.CloseFlush) // the line arrives before the notification
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
