package ucpnet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpnet"
)

// A server and a client of package net, each with a worker of its own. Between processes
// everything is the same.
func Example() {
	c, err := gucx.Open()
	check(err)
	defer c.Close()
	server := sharedWorker(c)
	defer server.Close()
	l, err := ucpnet.Listen(context.Background(), server, "tcp", "127.0.0.1:0")
	check(err)
	go echo(l)

	client := sharedWorker(c)
	defer client.Close()
	conn, err := ucpnet.Dial(context.Background(), client, "tcp", l.Addr().String())
	check(err)
	defer conn.Close()
	_, err = io.WriteString(conn, "hello")
	check(err)
	got := make([]byte, 5)
	_, err = io.ReadFull(conn, got)
	check(err)
	fmt.Println(string(got))
	// Output: hello
}

// echo serves connections. As it always waits for one, it makes progress for all of them.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(conn, conn) // until the client closes
			_ = conn.Close()
		}()
	}
}

func sharedWorker(c *ucp.Context) *ucp.SharedWorker {
	w, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	return w.Share()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
