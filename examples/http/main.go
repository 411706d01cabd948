// Command http is a server and a client of package net/http over gucx. They differ from those of any program in the
// listener and the dialer only: see sockets.go.
//
//	go run . -listen 127.0.0.1:7000 &
//	go run . -dial 127.0.0.1:7000 page
//
// With -over tcp or -over unix they use sockets.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	log.SetFlags(0)
	listenAt := flag.String("listen", "", "serve at this address: HOST:PORT, the path of a unix socket, or @NAME")
	dialTo := flag.String("dial", "", "get the page that the argument names from the server at this address")
	over := flag.String("over", "gucx", "gucx, or sockets: tcp, unix")
	flag.Parse()
	var err error
	switch {
	case *listenAt != "":
		err = serve(*over, *listenAt)
	case *dialTo != "":
		err = get(*over, *dialTo, flag.Arg(0))
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve serves until the process is interrupted, and answers then what it has begun to handle.
func serve(over, address string) error {
	n, err := open(over)
	if err != nil {
		return err
	}
	defer n.close()
	l, err := n.listen(address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s is here", r.URL.Path)
	})}
	stop, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Println("listening at", l.Addr())
	select {
	case err := <-served:
		return err
	case <-stop.Done():
		return server.Shutdown(context.Background())
	}
}

// get prints a page of the server.
func get(over, address, page string) error {
	n, err := open(over)
	if err != nil {
		return err
	}
	defer n.close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return n.dial(ctx, address)
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://server/" + page)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", answer.Status, body)
	return nil
}
