// Command kv is a server or a client of a key-value store. Lookups are gets from the memory of the server, updates are
// calls, and a second server has all updates: see package kvstore.
//
//	kv -listen 127.0.0.1:7000 -other 127.0.0.1:7001 -new &
//	kv -listen 127.0.0.1:7001 -other 127.0.0.1:7000 &
//	kv -dial 127.0.0.1:7000,127.0.0.1:7001 put colour blue
//	kv -dial 127.0.0.1:7000,127.0.0.1:7001 get colour
//
// Kill a server, and clients use the other one. Start it again without -new, and it gets the updates that it missed.
//
// Without flags the program is two servers and a client, and closes the first server.
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

// patience is how long a command of a client may take, except watch.
const patience = 30 * time.Second

func main() {
	log.SetFlags(0)
	var cfg kvstore.Config
	flag.StringVar(&cfg.Address, "listen", "", "be a server at this address")
	flag.StringVar(&cfg.Other, "other", "", "be a replica of the server at this address")
	flag.BoolVar(&cfg.New, "new", false, "begin with an empty table, unless the other server has one")
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
		cfg.Network = network(cfg.Address)
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
	if waitServing(ctx, s) == nil {
		fmt.Fprintln(out, "serving")
		<-ctx.Done()
	}
	return s.Close()
}

// waitServing waits until a server has all that it needs to serve.
func waitServing(ctx context.Context, s *kvstore.Server) error {
	for s.Serving() != nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return s.Serving()
		}
	}
	return nil
}

// command runs one command as a client.
func command(ctx context.Context, c *ucp.Context, out io.Writer, addresses, args []string) error {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cl, err := kvstore.Dial(ctx, c, kvstore.ClientConfig{Network: network(addresses[0]), Addresses: addresses})
	if err != nil {
		return err
	}
	defer cl.Close()
	switch {
	case len(args) == 3 && args[0] == "put":
		return cl.Put(ctx, args[1], []byte(args[2]))
	case len(args) == 2 && args[0] == "remove":
		return cl.Remove(ctx, args[1])
	case len(args) == 2 && args[0] == "watch":
		err := cl.Watch(interrupted, args[1], func(c kvstore.Change) { fmt.Fprintf(out, "%+v\n", c) })
		if interrupted.Err() != nil {
			return nil // the user ends a watch so
		}
		return err
	case len(args) == 2 && args[0] == "get":
		value, err := cl.Get(ctx, args[1], nil)
		if err == nil {
			fmt.Fprintf(out, "%s\n", value)
		}
		return err
	}
	return errors.New("kv: want put KEY VALUE, get KEY, remove KEY, or watch PREFIX")
}

// both is two servers with clients, of which one server is closed.
func both(ctx context.Context, c *ucp.Context, out io.Writer) error {
	a, b := fmt.Sprintf("@gucx-kv-a-%d", os.Getpid()), fmt.Sprintf("@gucx-kv-b-%d", os.Getpid())
	first, err := kvstore.Listen(ctx, c, kvstore.Config{Network: "unix", Address: a, Other: b, New: true})
	if err != nil {
		return err
	}
	second, err := kvstore.Listen(ctx, c, kvstore.Config{Network: "unix", Address: b, Other: a})
	if err != nil {
		return errors.Join(err, first.Close())
	}
	do := func(args ...string) error { return command(ctx, c, out, []string{a, b}, args) }
	err = errors.Join(waitServing(ctx, second), do("put", "colour", "blue"), do("put", "shape", "round"))
	return errors.Join(err, first.Close(), do("get", "colour"), second.Close())
}

// network is that of an address: unix for the name or the path of a socket.
func network(address string) string {
	if strings.HasPrefix(address, "@") || strings.HasPrefix(address, "/") {
		return "unix"
	}
	return "tcp"
}
