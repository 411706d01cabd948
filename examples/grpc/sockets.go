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

// network is where listeners and connections are from: gucx, or sockets.
type network struct {
	listen func(address string) (net.Listener, error)
	dial   func(ctx context.Context, address string) (net.Conn, error)
	close  func() error
	c      *ucp.Context // nil with sockets
}

// kindOf is the network of an address: that of a unix socket is a path, or a name after @.
func kindOf(address string) string {
	if strings.HasPrefix(address, "@") || path.IsAbs(address) {
		return "unix"
	}
	return "tcp"
}

// open opens gucx, or nothing for sockets.
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
