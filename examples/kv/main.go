// Command kv is a server or a client of a key-value store. Lookups are gets from the memory of the server, updates are
// calls: see package kvstore.
//
//	kv -listen 127.0.0.1:7000
//	kv -dial 127.0.0.1:7000 put colour blue
//	kv -dial 127.0.0.1:7000 get colour
//
// Without flags it is a server and a client in one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/examples/kv/kvstore"
	"github.com/gucx/gucx/ucp"
)

// patience is how long a command of a client may take.
const patience = 30 * time.Second

func main() {
	log.SetFlags(0)
	var cfg kvstore.Config
	flag.StringVar(&cfg.Address, "listen", "", "be a server at this address")
	dial := flag.String("dial", "", "be a client of the servers at these addresses, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, cfg, *dial, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, cfg kvstore.Config, dial string, args []string) error {
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	switch {
	case dial != "":
		return command(ctx, c, out, strings.Split(dial, ","), args)
	case cfg.Address != "":
		return serve(ctx, c, out, cfg)
	default:
		return both(ctx, c, out)
	}
}

// serve is a server until ctx ends.
func serve(ctx context.Context, c *ucp.Context, out io.Writer, cfg kvstore.Config) error {
	s, err := kvstore.Listen(ctx, c, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "listening on", s.Addr())
	<-ctx.Done()
	return s.Close()
}

// command runs one command as a client.
func command(ctx context.Context, c *ucp.Context, out io.Writer, addresses, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cl, err := kvstore.Dial(ctx, c, kvstore.ClientConfig{Addresses: addresses})
	if err != nil {
		return err
	}
	defer cl.Close()
	switch {
	case len(args) == 3 && args[0] == "put":
		return cl.Put(ctx, args[1], []byte(args[2]))
	case len(args) == 2 && args[0] == "remove":
		return cl.Remove(ctx, args[1])
	case len(args) == 2 && args[0] == "get":
		value, err := cl.Get(ctx, args[1], nil)
		if err == nil {
			fmt.Fprintf(out, "%s\n", value)
		}
		return err
	}
	return errors.New("kv: want put KEY VALUE, get KEY, or remove KEY")
}

// both is a server with a client.
func both(ctx context.Context, c *ucp.Context, out io.Writer) error {
	s, err := kvstore.Listen(ctx, c, kvstore.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, args := range [][]string{{"put", "colour", "blue"}, {"put", "shape", "round"}, {"get", "colour"}} {
		if err := command(ctx, c, out, []string{s.Addr().String()}, args); err != nil {
			return err
		}
	}
	return nil
}
