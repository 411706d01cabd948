package main

import (
	"context"
	"errors"
	"net"
	"path"
	"strings"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpnet"
)

// network creates listeners and connections: over gucx or over sockets.
type network struct {
	listen func(address string) (net.Listener, error)
	dial   func(ctx context.Context, address string) (net.Conn, error)
	close  func() error
	c      *ucp.Context // nil with sockets
}

// kindOf returns the network of an address: "unix" for a path or a name after @, otherwise "tcp".
func kindOf(address string) string {
	if strings.HasPrefix(address, "@") || path.IsAbs(address) {
		return "unix"
	}
	return "tcp"
}

// open opens a network. For sockets it opens nothing.
func open(over string) (*network, error) {
	if over != "gucx" {
		return &network{
			listen: func(address string) (net.Listener, error) { return net.Listen(over, address) },
			dial: func(ctx context.Context, address string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, over, address)
			},
			close: func() error { return nil },
		}, nil
	}
	c, err := gucx.Open()
	if err != nil {
		return nil, err
	}
	owned, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	w := owned.Share()
	return &network{
		listen: func(address string) (net.Listener, error) {
			return ucpnet.Listen(context.Background(), w, kindOf(address), address)
		},
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return ucpnet.Dial(ctx, w, kindOf(address), address)
		},
		close: func() error { return errors.Join(w.Close(), c.Close()) },
		c:     c,
	}, nil
}
