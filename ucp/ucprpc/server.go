package ucprpc

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// ServerConfig configures a Server. The zero value has no handlers.
type ServerConfig struct {
	Handlers Handlers
	Limits   Limits
	// Workers is the number of workers, each with a goroutine that makes progress; 0 means 1. A new peer
	// connects to the worker with the fewest peers. If there is more than one worker, the others listen at further ports
	// of the same host, or further names of unix sockets, to which the first one redirects dialers.
	Workers int
	// Worker configures the workers.
	Worker ucp.WorkerConfig
	// Accept and AllowUIDs accept or reject dialers: see [ucp.ListenConfig].
	Accept    func(from ucp.Identity) bool
	AllowUIDs []uint32
	// OnPeer is called for each new connection, OnPeerGone when it has ended. For both, the rules of inline handlers
	// apply: see HandlerConfig.
	OnPeer     func(p *Peer)
	OnPeerGone func(p *Peer, err error)
}

// Server serves requests. All methods may be called by any goroutine, but not by a handler that runs inline.
type Server struct {
	node
	cfg   ServerConfig
	loops []*serverLoop
	turn  int // used by the driver of the first loop only
}

// serverLoop is a loop that listens.
type serverLoop struct {
	*loop
	s     *Server
	l     *ucp.Listener
	peers atomic.Int64
	at    string // the redirection of dialers to this loop
}

// Listen starts a server. For network and address see [ucp.Worker.Listen]; ctx limits only the lookup of a
// host name.
func Listen(ctx context.Context, c *ucp.Context, network, address string, cfg ServerConfig) (*Server, error) {
	return newServer(c, cfg, network, address, func(w *ucp.Worker, address string, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.Listen(ctx, network, address, cfg)
	})
}

// ListenOn is Listen on a socket that is open: see [ucp.Worker.ListenOn]. The server has one worker.
func ListenOn(c *ucp.Context, socket net.Listener, cfg ServerConfig) (*Server, error) {
	cfg.Workers = 1
	return newServer(c, cfg, socket.Addr().Network(), "", func(w *ucp.Worker, _ string, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.ListenOn(socket, cfg)
	})
}

type listenFunc func(w *ucp.Worker, address string, cfg ucp.ListenConfig) (*ucp.Listener, error)

func newServer(c *ucp.Context, cfg ServerConfig, network, address string, listen listenFunc) (_ *Server, err error) {
	s := &Server{cfg: cfg, node: node{c: c, cfg: cfg.Limits, handlers: cfg.Handlers.clone(), serves: true, stats: stats.New("ucprpc"), memory: map[string]*ucp.Mem{}}}
	if err := s.node.cfg.setDefaults(); err != nil {
		return nil, err
	}
	s.node.handlers.Handle(methodOpen, HandlerConfig{Inline: true}, s.open)
	defer func() {
		if err != nil {
			err = ucs.Join(err, s.Close())
		}
	}()
	for i := range max(cfg.Workers, 1) {
		w, err := c.NewWorker(cfg.Worker)
		if err != nil {
			return nil, err
		}
		l := &serverLoop{loop: newLoop(w, &s.node), s: s}
		s.loops = append(s.loops, l)
		if l.l, err = listen(w, siblingAddress(network, address, i), ucp.ListenConfig{
			Private: []byte(hello), AllowUIDs: cfg.AllowUIDs,
			Accept: l.accept, OnPeer: l.onPeer, OnPeerGone: func(p *ucp.Peer, err error) { l.onGone(p, err) },
		}); err != nil {
			return nil, err
		}
		l.at = redirection(l.l.Addr())
	}
	for _, l := range s.loops { // when all of them listen, because the first one redirects dialers to the others
		l.running.Add(1)
		go l.serve()
	}
	return s, nil
}

// siblingAddress returns the address at which worker i of a server listens.
func siblingAddress(network, address string, i int) string {
	if i == 0 {
		return address
	}
	if strings.HasPrefix(network, "tcp") {
		host, _, _ := net.SplitHostPort(address) // Listen has accepted it
		return net.JoinHostPort(host, "0")
	}
	return address + "-" + strconv.Itoa(i)
}

// redirection returns the text that redirects a dialer to addr: a port, because the dialer knows the host, or a name.
func redirection(addr net.Addr) string {
	if a, ok := addr.(*net.TCPAddr); ok {
		return strconv.Itoa(a.Port)
	}
	return addr.String()
}

// redirected returns the address that a dialer of address must dial next.
func redirected(network, address, to string) string {
	if host, _, err := net.SplitHostPort(address); err == nil && strings.HasPrefix(network, "tcp") {
		return net.JoinHostPort(host, to)
	}
	return to
}

// accept accepts or rejects a dialer, or redirects it to the worker with the fewest peers.
func (l *serverLoop) accept(r *ucp.ConnRequest) bool {
	if string(r.Private) != hello || l.s.cfg.Accept != nil && !l.s.cfg.Accept(r.From) {
		return false
	}
	if l != l.s.loops[0] {
		return true
	}
	l.s.turn++
	least := l.s.loops[l.s.turn%len(l.s.loops)] // round robin, because peers are counted only when they have connected
	for _, o := range l.s.loops {
		if o.peers.Load() < least.peers.Load() {
			least = o
		}
	}
	if least == l {
		return true
	}
	return r.Answer([]byte(hello+least.at)) != nil
}

func (l *serverLoop) onPeer(up *ucp.Peer) {
	l.peers.Add(1)
	p := l.add(up.EP, up.From)
	p.onGone = func(p *Peer, err error) {
		l.peers.Add(-1)
		if l.s.cfg.OnPeerGone != nil {
			l.s.cfg.OnPeerGone(p, err)
		}
	}
	if l.draining {
		p.notify(&header{kind: kindDrain})
	}
	if l.s.cfg.OnPeer != nil {
		l.s.cfg.OnPeer(p)
	}
}

func (l *serverLoop) onGone(up *ucp.Peer, err error) {
	if p := l.loop.peers[up.EP]; p != nil {
		l.drop(p, err)
	}
}

// Addr returns the address of the server, for Dial.
func (s *Server) Addr() net.Addr { return s.loops[0].l.Addr() }

// Stats returns the root of a tree of counters, with one node for each worker.
func (s *Server) Stats() *stats.Node { return s.stats }

// Shutdown closes the server gracefully. It accepts no more peers and rejects new requests with CodeDraining: a Client
// repeats them over a new connection, to the next server at the address. Shutdown returns when all peers have received
// their replies and have disconnected, as a Client does by itself, or when ctx is done. The server is closed then.
func (s *Server) Shutdown(ctx context.Context) error {
	var errs []error
	for _, l := range s.loops {
		l.runOnLoop(func() {
			if l.closed {
				return
			}
			l.draining = true
			errs = append(errs, l.l.Close())
			for _, p := range l.loop.peers {
				p.notify(&header{kind: kindDrain})
			}
		})
	}
	for _, l := range s.loops {
		l.drain(ctx)
	}
	return ucs.Join(append(errs, s.Close())...)
}

// Close closes the server. Calls in progress fail at their callers with CodeLost, and the contexts of their handlers
// end. Close waits until all handlers have returned, so no handler may call Close or Shutdown.
func (s *Server) Close() error {
	var errs []error
	for _, l := range s.loops {
		errs = append(errs, l.close(disconnected))
	}
	return errors.Join(errs...)
}
