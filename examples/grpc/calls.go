package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
)

// What gRPC is compared with: net/rpc, ucprpc, and active messages without anything around them.

// Echo is the service of net/rpc.
type Echo struct{}

// Echo returns its argument.
func (Echo) Echo(in *[]byte, out *[]byte) error {
	*out = *in
	return nil
}

func serveNetRPC(l net.Listener) error {
	s := rpc.NewServer()
	if err := s.Register(Echo{}); err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go s.ServeConn(c)
	}
}

func connectNetRPC(n *network, address string) (call, end func() error, err error) {
	c, err := n.dial(context.Background(), address)
	if err != nil {
		return nil, nil, err
	}
	client := rpc.NewClient(c)
	what, reply := make([]byte, messageLen), []byte(nil)
	return func() error { return client.Call("Echo.Echo", &what, &reply) }, client.Close, nil
}

// Methods of ucprpc, with a handler that runs in a goroutine, and with one that runs inline.
var (
	echoMethod   = ucprpc.Method{Number: 1}
	inlineMethod = ucprpc.Method{Number: 2}
)

func serveCalls(n *network, address string) (string, error) {
	var cfg ucprpc.ServerConfig
	echo := func(c *ucprpc.Call) error {
		c.Reply = append(c.Reply, c.Data...)
		return nil
	}
	cfg.Handlers.Handle(echoMethod, ucprpc.HandlerConfig{}, echo)
	cfg.Handlers.Handle(inlineMethod, ucprpc.HandlerConfig{Inline: true}, echo)
	s, err := ucprpc.Listen(context.Background(), n.c, kindOf(address), address, cfg)
	if err != nil {
		return "", err
	}
	return s.Addr().String(), nil // until the process ends
}

// connectCalls connects callers that share a client for each address.
func connectCalls(m ucprpc.Method) func(n *network, address string) (call, end func() error, err error) {
	clients := map[string]*ucprpc.Client{}
	return func(n *network, address string) (call, end func() error, err error) {
		client := clients[address]
		end = func() error { return nil }
		if client == nil {
			if client, err = ucprpc.Dial(context.Background(), n.c, kindOf(address), address, ucprpc.ClientConfig{}); err != nil {
				return nil, nil, err
			}
			clients[address] = client
			end = client.Close
		}
		what, buf := make([]byte, messageLen), make([]byte, messageLen)
		return func() error {
			_, err := client.Call(context.Background(), m, what, buf)
			return err
		}, end, nil
	}
}

// idEcho is the id of the active messages.
const idEcho = 1

func serveActive(n *network, address string) (string, error) {
	w, err := n.c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return "", err
	}
	var failed sync.Once
	w.OnActive(idEcho, func(m *ucp.ActiveMessage) {
		if _, err := m.From.SendActive(idEcho, m.Header, nil, nil); err != nil {
			failed.Do(func() { fmt.Println(err) }) // which no client expects here
		}
	})
	l, err := w.Listen(context.Background(), kindOf(address), address, ucp.ListenConfig{})
	if err != nil {
		return "", err
	}
	go w.Serve(context.Background())
	return l.Addr().String(), nil
}

// connectActive connects a caller with a worker of its own.
func connectActive(n *network, address string) (call, end func() error, err error) {
	w, err := n.c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, nil, err
	}
	replied := false
	w.OnActive(idEcho, func(*ucp.ActiveMessage) { replied = true })
	p, err := w.Dial(context.Background(), kindOf(address), address, ucp.DialConfig{})
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	what := make([]byte, messageLen) // as the header, which always comes with the message
	return func() error {
		replied = false
		if _, err := p.EP.SendActive(idEcho, what, nil, nil); err != nil {
			return err
		}
		return w.Until(context.Background(), func() bool { return replied })
	}, w.Close, nil
}
