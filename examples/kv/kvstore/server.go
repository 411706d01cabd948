package kvstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Config configures a Server. The zero value listens at a free port of this host.
type Config struct {
	// Network and Address are where the server listens: see [ucp.Worker.Listen]. "" means tcp and 127.0.0.1:0.
	Network, Address string
	// Keys is how many keys the table has room for; 0 means 4,096.
	Keys int
	// Key and Value are the maximum lengths of a key and of a value in bytes, up to MaxKey and MaxValue. 0 means 64
	// and 256. Each slot of the table has room for both.
	Key, Value int
}

// Server has a table and serves it. All methods may be called by any goroutine.
type Server struct {
	cfg Config
	id  string
	rpc *ucprpc.Server
	mem *ucp.Mem

	mu      sync.Mutex
	table   table           // written under mu; clients read it without
	updates uint64          // how many there were; under mu
	watches map[*watch]bool // under mu
}

// Listen makes a server with an empty table and begins to serve. ctx is for looking up a host name only.
func Listen(ctx context.Context, c *ucp.Context, cfg Config) (_ *Server, err error) {
	cfg.Network, cfg.Address = cmp.Or(cfg.Network, "tcp"), cmp.Or(cfg.Address, "127.0.0.1:0")
	cfg.Keys, cfg.Key, cfg.Value = cmp.Or(cfg.Keys, 4096), cmp.Or(cfg.Key, 64), cmp.Or(cfg.Value, 256)
	if cfg.Keys < 1 || cfg.Key < 1 || cfg.Key > MaxKey || cfg.Value < 1 || cfg.Value > MaxValue {
		return nil, fmt.Errorf("kvstore: %d keys of %d bytes with values of %d bytes: %w", cfg.Keys, cfg.Key, cfg.Value, ucs.ErrInvalidParam)
	}
	s := &Server{cfg: cfg, id: rand.Text(), watches: map[*watch]bool{}}
	s.table.shape = shapeFor(cfg.Keys, cfg.Key, cfg.Value)
	if s.mem, err = c.MemAllocAccess(s.table.len(), uct.AccessRemoteRead); err != nil {
		return nil, err
	}
	s.table.mem = s.mem.Bytes()
	s.rpc, err = ucprpc.Listen(ctx, c, cfg.Network, cfg.Address, ucprpc.ServerConfig{Handlers: s.handlers()})
	if err == nil {
		err = s.rpc.Publish(s.id, s.mem)
	}
	if err != nil {
		return nil, ucs.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) handlers() (h ucprpc.Handlers) {
	inline := ucprpc.HandlerConfig{Inline: true}
	handle := func(m ucprpc.Method, cfg ucprpc.HandlerConfig, f ucprpc.Handler) {
		h.Handle(m, cfg, func(c *ucprpc.Call) error { return encodeError(f(c)) })
	}
	handle(methodInfo, inline, s.handleInfo)
	handle(methodGet, inline, s.handleGet)
	handle(methodPut, inline, s.handlePut)
	handle(methodRemove, inline, s.handleRemove)
	handle(methodWatch, ucprpc.HandlerConfig{}, s.handleWatch)
	return h
}

func (s *Server) handleInfo(c *ucprpc.Call) (err error) {
	c.Reply, err = json.Marshal(info{ID: s.id, Key: s.cfg.Key, Value: s.cfg.Value, shape: s.table.shape})
	return err
}

func (s *Server) handleGet(c *ucprpc.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.table.find(c.Data)
	if !found {
		return ErrNoKey
	}
	c.Reply = append(c.Reply, s.table.at(i).value...)
	return nil
}

func (s *Server) handlePut(c *ucprpc.Call) error {
	key, value, err := parsePut(c.Data)
	if err != nil {
		return err
	}
	return s.update(key, value, false)
}

func (s *Server) handleRemove(c *ucprpc.Call) error { return s.update(c.Data, nil, true) }

// update writes or removes a key, which may be anything.
func (s *Server) update(key, value []byte, remove bool) error {
	if len(key) == 0 || len(key) > s.cfg.Key || len(value) > s.cfg.Value {
		return ErrTooLong
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !remove && !s.table.hasRoom(key, 0):
		return ErrFull
	case remove && !s.table.remove(key):
		return ErrNoKey
	}
	s.updates++
	if !remove {
		s.table.put(entry{key: key, value: value, update: s.updates})
	}
	s.report(key, remove)
	return nil
}

// Addr returns where the server listens.
func (s *Server) Addr() net.Addr { return s.rpc.Addr() }

// Close closes the server. Its table is lost.
func (s *Server) Close() error {
	var err error
	if s.rpc != nil {
		err = s.rpc.Close()
	}
	return ucs.Join(err, s.mem.Close())
}
