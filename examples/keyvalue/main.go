// Command keyvalue is a key-value service. A client writes by a message to the server, and
// reads by gets from the memory that the server publishes. Reads use no CPU of the server,
// and over shared memory and InfiniBand they work while it is busy.
//
//	keyvalue -listen 127.0.0.1:7000
//	keyvalue -dial 127.0.0.1:7000 set colour blue
//	keyvalue -dial 127.0.0.1:7000 get colour
//
// Without flags it runs a server and a client in one process.
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
	"syscall"
	"time"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// slots is the maximum number of values.
const slots = 1 << 12

// patience limits how long a client waits for its server, drainLimit how long a server waits until its clients have disconnected.
const (
	patience   = 30 * time.Second
	drainLimit = 5 * time.Second
)

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "", "be a server at this address")
	dial := flag.String("dial", "", "be a client of the server at this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *listen, *dial, flag.Args()); err != nil {
		log.Fatalf("keyvalue: %v", err)
	}
}

func run(ctx context.Context, out io.Writer, listen, dial string, args []string) error {
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	switch {
	case dial != "":
		return command(ctx, c, out, dial, args)
	case listen != "":
		return serve(ctx, c, out, listen)
	default:
		return both(ctx, c, out)
	}
}

// serve runs a server until ctx is done. Calls in progress still get their replies.
func serve(ctx context.Context, c *ucp.Context, out io.Writer, addr string) error {
	mem, err := c.MemAllocAccess(slots*slotLen, uct.AccessRemoteRead)
	if err != nil {
		return err
	}
	defer mem.Close()
	s, err := newServer(ctx, c, addr, mem)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "listening on", s.Addr())
	<-ctx.Done()
	limit, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	return s.Shutdown(limit)
}

// command runs one command as a client.
func command(ctx context.Context, c *ucp.Context, out io.Writer, addr string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cl, err := dialServer(ctx, c, addr)
	if err != nil {
		return err
	}
	defer cl.calls.Close()
	switch {
	case len(args) == 3 && args[0] == "set":
		return cl.set(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "get":
		value, err := cl.get(ctx, args[1])
		if err == nil {
			fmt.Fprintln(out, value)
		}
		return err
	}
	return errors.New("want: set KEY VALUE, or get KEY")
}

// both runs a server and a client.
func both(ctx context.Context, c *ucp.Context, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines, says := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := serve(ctx, c, says, "127.0.0.1:0")
		served <- errors.Join(err, says.Close())
	}()
	var addr string
	if _, err := fmt.Fscanf(lines, "listening on %s\n", &addr); err != nil {
		return errors.Join(err, <-served)
	}
	err := errors.Join(
		command(ctx, c, out, addr, []string{"set", "colour", "blue"}),
		command(ctx, c, out, addr, []string{"set", "shape", "round"}),
		command(ctx, c, out, addr, []string{"get", "colour"}),
	)
	stop()
	return errors.Join(err, <-served)
}
