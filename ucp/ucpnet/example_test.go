package ucpnet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpnet"
)

// A server and a client of package net, each with its own worker. They could be two processes.
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

// A server and a client of package net/http with a listener and a dialer of ucpnet.
func Example_http() {
	c, err := gucx.Open()
	check(err)
	defer c.Close()
	server := sharedWorker(c)
	defer server.Close()
	l, err := ucpnet.Listen(context.Background(), server, "tcp", "127.0.0.1:0")
	check(err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s is here", r.URL.Path)
	})}
	defer srv.Close()
	go srv.Serve(l) // always in Accept: it makes progress for all connections

	client := sharedWorker(c)
	defer client.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return ucpnet.Dial(ctx, client, network, addr)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String() + "/page")
	check(err)
	body, err := io.ReadAll(resp.Body)
	check(err)
	check(resp.Body.Close())
	fmt.Println(resp.Status, string(body))
	// Output: 200 OK /page is here
}

// echo serves connections. Because it always waits in Accept, it makes progress for all of them.
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
