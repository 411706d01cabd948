// Command ucx is a service in Go for programs that use UCX, and a client in Go for such a service in C. A request
// is an active message with bytes; the reply is an active message with their sum. testdata/sum.c is the peer of both,
// written with UCX.
//
//	ucx serve 127.0.0.1:7900
//	ucx call 127.0.0.1:7900 hello
//
// UCX's protocol has no authentication: use it in trusted networks only.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/gucx/gucx/ucp/ucxpeer"
)

// Ids of active messages. Headers are numbers of 8 bytes, little endian.
const (
	idRequest = 1 // header: number of the request; data: bytes to add up
	idReply   = 2 // header: number of the request, and the sum; no data
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(ctx, os.Args[2], func(addr string) { fmt.Println("listening on", addr) })
	case len(os.Args) == 4 && os.Args[1] == "call":
		var sum uint64
		sum, err = call(ctx, os.Args[2], ucxpeer.LayoutAuto, []byte(os.Args[3]))
		fmt.Println("sum:", sum)
	default:
		log.Fatal("usage: ucx serve ADDRESS | ucx call ADDRESS TEXT")
	}
	if err != nil {
		log.Fatal(err)
	}
}
