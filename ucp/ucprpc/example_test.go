package ucprpc_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp/ucprpc"
)

var upper = ucprpc.Method{Name: "upper", Idempotent: true}

// A server and a client, usually in two processes.
func Example() {
	ctx := context.Background()
	c, err := gucx.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	var cfg ucprpc.ServerConfig
	cfg.Handlers.Handle(upper, ucprpc.HandlerConfig{}, func(c *ucprpc.Call) error {
		c.Reply = append(c.Reply, strings.ToUpper(string(c.Data))...)
		return nil
	})
	s, err := ucprpc.Listen(ctx, c, "tcp", "127.0.0.1:0", cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	cl, err := ucprpc.Dial(ctx, c, "tcp", s.Addr().String(), ucprpc.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()
	reply, err := cl.Call(ctx, upper, []byte("hello"), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", reply)
	// Output: HELLO
}

// Memory of the server by name: the client reads and writes it without a handler.
func ExampleMemory() {
	ctx := context.Background()
	c, err := gucx.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	mem, err := c.MemAlloc(4096)
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Close()

	s, err := ucprpc.Listen(ctx, c, "tcp", "127.0.0.1:0", ucprpc.ServerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Publish("board", mem); err != nil {
		log.Fatal(err)
	}

	cl, err := ucprpc.Dial(ctx, c, "tcp", s.Addr().String(), ucprpc.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()
	board, err := cl.Open(ctx, "board")
	if err != nil {
		log.Fatal(err)
	}
	if err := board.Put(ctx, []byte("chalk"), 100); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 5)
	if err := board.Get(ctx, got, 100); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", got)
	// Output: chalk
}
