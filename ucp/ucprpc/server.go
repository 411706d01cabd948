package ucprpc

import (
	"context"
	"errors"
	"net"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// ServerConfig configures a Server. The zero value has no handlers.
type ServerConfig struct {
	Handlers Handlers
	Limits   Limits
	// Workers is the number of workers, each with a goroutine that makes progress; 0 means 1. They share the address: a
	// new peer connects to the worker with the fewest peers. Handlers that run inline, OnPeer and OnPeerGone of different
	// workers run at the same time.
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
	loops []*loop
	turn  int // used by the driver of the first loop only
}

// Listen starts a server. For network and address see [ucp.Worker.Listen]; ctx limits only the lookup of a
// host name.
func Listen(ctx context.Context, c *ucp.Context, network, address string, cfg ServerConfig) (*Server, error) {
	return newServer(c, cfg, func(w *ucp.Worker, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.Listen(ctx, network, address, cfg)
	})
}

// ListenOn is Listen on a socket that is open: see [ucp.Worker.ListenOn].
func ListenOn(c *ucp.Context, socket net.Listener, cfg ServerConfig) (*Server, error) {
	return newServer(c, cfg, func(w *ucp.Worker, cfg ucp.ListenConfig) (*ucp.Listener, error) {
		return w.ListenOn(socket, cfg)
	})
}

type listenFunc func(w *ucp.Worker, cfg ucp.ListenConfig) (*ucp.Listener, error)

func newServer(c *ucp.Context, cfg ServerConfig, listen listenFunc) (_ *Server, err error) {
	s := &Server{cfg: cfg}
	if err := s.node.init(c, cfg.Limits, &cfg.Handlers); err != nil {
		return nil, err
	}
	s.serves, s.onGone = true, cfg.OnPeerGone
	defer func() {
		if err != nil {
			err = ucs.Join(err, s.Close())
		}
	}()
	for range max(cfg.Workers, 1) {
		l, err := s.newLoop(cfg.Worker)
		if err != nil {
			return nil, err
		}
		s.loops = append(s.loops, l)
		lcfg := ucp.ListenConfig{
			Private: []byte(hello), AllowUIDs: cfg.AllowUIDs, OnPeer: func(up *ucp.Peer) { s.onPeer(l, up) },
			OnPeerGone: func(up *ucp.Peer, err error) { l.dropPeerLater(up.EP, err) },
		}
		if l == s.loops[0] {
			lcfg.Accept = s.accept
			l.listener, err = listen(l.w, lcfg)
		} else {
			l.listener, err = l.w.ListenWith(s.loops[0].listener, lcfg)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, l := range s.loops { // when all of them listen, because the first one migrates dialers to the others
		l.running.Go(l.serve)
	}
	return s, nil
}

// accept accepts or rejects a dialer. It migrates the dialer to the worker with the fewest peers.
func (s *Server) accept(r *ucp.ConnRequest) bool {
	if string(r.Private) != hello || s.cfg.Accept != nil && !s.cfg.Accept(r.From) {
		return false
	}
	s.turn++
	least := s.loops[s.turn%len(s.loops)] // round robin, because peers are counted only when they have connected
	for _, l := range s.loops {
		if l.connected.Load() < least.connected.Load() {
			least = l
		}
	}
	if least != s.loops[0] {
		_ = r.Migrate(least.listener) // an error means that the server closes
	}
	return true
}

func (s *Server) onPeer(l *loop, up *ucp.Peer) {
	p := l.addPeer(up.EP)
	if l.draining {
		p.notify(&header{kind: kindDrain})
	}
	if s.cfg.OnPeer != nil {
		s.cfg.OnPeer(p)
	}
}

// Addr returns the address of the server, for Dial.
func (s *Server) Addr() net.Addr { return s.loops[0].listener.Addr() }

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
			errs = append(errs, l.listener.Close())
			for _, p := range l.peers {
				p.notify(&header{kind: kindDrain})
			}
		})
	}
	for _, l := range s.loops {
		l.awaitQuiet(ctx)
	}
	return ucs.Join(append(errs, s.Close())...)
}

// Close closes the server. Calls in progress fail at their callers with CodeLost, and the contexts of their handlers
// end. Close waits until all handlers have returned, so no handler may call Close or Shutdown.
func (s *Server) Close() error {
	var errs []error
	for _, l := range s.loops {
		errs = append(errs, l.closeWorker())
	}
	for _, l := range s.loops { // when all contexts have ended, because a handler may wait for one of another worker
		l.running.Wait()
	}
	return errors.Join(errs...)
}
