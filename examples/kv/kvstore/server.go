package kvstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Config is the configuration of a Server. The zero value listens at a free port of 127.0.0.1.
type Config struct {
	// Network and Address are the address of the server: see [ucp.Worker.Listen]. "" means tcp and 127.0.0.1:0.
	Network, Address string
	// Keys is the maximum number of keys in the table; 0 means 4,096.
	Keys int
	// Key and Value are the maximum lengths of a key and of a value in bytes, up to MaxKey and MaxValue. 0 means 64
	// and 256. Each slot of the table has space for both.
	Key, Value int

	// Other is the address of the other replica; "" means that there is none. An address other than a unix socket must
	// contain an IP address, not a host name, because a name may have addresses at which the replica does not listen.
	// Only the other replica may remove the path of its unix socket: if the path does not exist, the other replica has
	// exited.
	Other string
	// New makes the server the primary unless the other one has updates. Set New at one or both servers only for the
	// first start of the store, not for a restart: if both servers have exited, a server with New starts with an empty
	// table. If both servers have New, one of them becomes the backup.
	New bool
	// Lease is the time that a backup waits before it becomes the primary. If the primary gets no CPU time for a quarter
	// of the lease, clients call it for each lookup. 0 means 500 ms. Both replicas must have the same lease.
	Lease time.Duration
}

// Server is one replica of a store. Several goroutines may call its methods.
type Server struct {
	cfg     Config
	c       *ucp.Context
	id      string
	rpc     *ucprpc.Server
	mem     *ucp.Mem
	open    context.Context
	shut    context.CancelFunc
	closing sync.WaitGroup // goroutines of the server

	mu     sync.Mutex
	queue  []*update  // updates that wait for the end of batch; under mu
	batch  []*update  // updates that the server is writing to the log of the backup, or of a failed backup; under mu
	holds  int        // no batch starts while holds is positive; under mu
	idle   *sync.Cond // signaled when batch is empty or the server is closed; its lock is mu
	backup *follower  // nil without backup; under mu

	table        table             // written under mu; clients read it by gets
	updates      uint64            // number of the latest update; under mu
	watches      map[*watch]bool   // under mu
	role         role              // under mu
	followed     string            // ID of the primary; under mu
	log          *logReader        // nil before the server was a backup; under mu
	backupEpoch  int               // incremented when this server becomes a backup or a primary drops it; under mu
	removed      map[string]uint64 // keys removed while syncing, with the number of the update; under mu
	syncingCalls int               // calls by a syncing server with New; under mu
	why          error             // why the server does not serve; under mu
}

// Listen starts a server with an empty table. ctx limits only the lookup of a host name. The caller must close the Server.
func Listen(ctx context.Context, c *ucp.Context, cfg Config) (*Server, error) {
	cfg.Network, cfg.Address = cmp.Or(cfg.Network, "tcp"), cmp.Or(cfg.Address, "127.0.0.1:0")
	cfg.Lease = cmp.Or(cfg.Lease, 500*time.Millisecond)
	cfg.Keys, cfg.Key, cfg.Value = cmp.Or(cfg.Keys, 4096), cmp.Or(cfg.Key, 64), cmp.Or(cfg.Value, 256)
	if cfg.Keys < 1 || cfg.Key < 1 || cfg.Key > MaxKey || cfg.Value < 1 || cfg.Value > MaxValue || cfg.Lease < time.Millisecond {
		return nil, fmt.Errorf("kvstore: %d keys of %d bytes with values of %d bytes: %w", cfg.Keys, cfg.Key, cfg.Value, ucs.ErrInvalidParam)
	}
	if err := checkOther(cfg); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, c: c, id: rand.Text(), role: syncing, watches: map[*watch]bool{}}
	s.idle = sync.NewCond(&s.mu)
	s.open, s.shut = context.WithCancel(context.Background())
	s.table.shape = shapeFor(cfg.Keys, cfg.Key, cfg.Value)
	var err error
	if s.mem, err = c.MemAllocAccess(s.table.len(), uct.AccessRemoteRead); err != nil {
		return nil, err
	}
	s.table.mem = s.mem.Bytes()
	if s.rpc, err = ucprpc.Listen(ctx, c, cfg.Network, cfg.Address, ucprpc.ServerConfig{Handlers: s.handlers(), Limits: ucprpc.Limits{MaxRequest: maxRequest}}); err != nil {
		return nil, ucs.Join(err, s.mem.Close())
	}
	if cfg.Other == "" {
		s.lead()
	} else {
		s.closing.Go(s.replicate)
	}
	return s, nil
}

// maxRequest is the maximum length of a request in bytes.
const maxRequest = 64 << 10

// checkOther rejects an address at which a refused connection does not mean that the other replica has exited.
func checkOther(cfg Config) error {
	if cfg.Other == "" || strings.HasPrefix(cfg.Network, "unix") {
		return nil
	}
	if _, err := netip.ParseAddrPort(cfg.Other); err != nil {
		return fmt.Errorf("kvstore: Other must be an IP address and a port: %w: %w", ucs.ErrInvalidParam, err)
	}
	return nil
}

// handlers returns the handlers of all methods.
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
	handle(methodJoin, ucprpc.HandlerConfig{}, s.handleJoin)
	handle(methodFollow, ucprpc.HandlerConfig{}, s.handleFollow)
	return h
}

// info returns the info of the server.
func (s *Server) info() info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.infoLocked()
}

// infoLocked is info. The caller holds s.mu.
func (s *Server) infoLocked() info {
	return info{ID: s.id, Role: s.role, New: s.cfg.New, Lease: s.cfg.Lease, Key: s.cfg.Key, Value: s.cfg.Value, shape: s.table.shape}
}

// handleInfo replies with the info of this server. A primary that calls has dropped this server as its backup. If this
// server is syncing, a calling server with New may become the primary: see leadUnlessCalled.
func (s *Server) handleInfo(c *ucprpc.Call) (err error) {
	var caller info
	if len(c.Data) > 0 {
		if err := json.Unmarshal(c.Data, &caller); err != nil {
			return err
		}
	}
	s.mu.Lock()
	switch {
	case caller.Role == primary:
		if s.backupEpoch++; s.role == backup {
			s.role = syncing
		}
	case caller.Role == syncing && caller.New:
		s.syncingCalls++
	}
	s.mu.Unlock()
	c.Reply, err = json.Marshal(s.info())
	return err
}

func (s *Server) handleGet(c *ucprpc.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != primary {
		return errNotPrimary
	}
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
	return s.update(c, key, value, false)
}

func (s *Server) handleRemove(c *ucprpc.Call) error {
	return s.update(c, c.Data, nil, true)
}

// update executes an update of an untrusted client. If the server has a backup, the reply waits until the backup has the
// update.
func (s *Server) update(c *ucprpc.Call, key, value []byte, remove bool) error {
	if len(key) == 0 || len(key) > s.cfg.Key || len(value) > s.cfg.Value {
		return ErrTooLong
	}
	u := &update{entry: entry{key: key, value: value}, remove: remove, call: c}
	if s.cfg.Other != "" {
		data := append(append(make([]byte, 0, len(key)+len(value)), key...), value...) // a copy: the request is invalid after the return
		u.key, u.value = data[:len(key)], data[len(key):]
		s.commit(u)
		return ucprpc.ErrPending
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !u.remove && !s.table.hasRoom(u.key) {
		return ErrFull
	}
	s.updates++
	u.number = s.updates
	return s.apply(u)
}

// apply executes an update on the table, which must have a free slot for a new key. The caller holds s.mu.
func (s *Server) apply(u *update) error {
	if u.remove && !s.table.remove(u.key) {
		return ErrNoKey
	}
	if !u.remove {
		s.table.put(u.entry)
	}
	s.report(u.key, u.remove)
	return nil
}

// beats is the number of changes of the header in a lease.
const beats = 64

// beat changes the header until the server is closed.
func (s *Server) beat() {
	for n := uint64(1); s.open.Err() == nil; n++ {
		binary.LittleEndian.PutUint64(s.mem.Bytes()[headBeat:], n)
		s.pause(s.cfg.Lease / beats)
	}
}

// pause waits for d or until the server is closed.
func (s *Server) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.open.Done():
	}
}

// Serving returns nil if the server is the primary or a backup in sync, and otherwise the reason.
func (s *Server) Serving() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role == syncing {
		return cmp.Or(s.why, errNotPrimary)
	}
	return nil
}

func (s *Server) setWhy(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = err
}

// Addr returns the address of the server.
func (s *Server) Addr() net.Addr { return s.rpc.Addr() }

// Close closes the server. Its table is lost; the other replica continues.
func (s *Server) Close() error {
	s.mu.Lock()
	s.shut() // under mu: fail starts no goroutine afterwards
	s.idle.Broadcast()
	s.mu.Unlock()
	s.closing.Wait() // before the address is free: the other replica then assumes that this server has exited
	err := s.rpc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return ucs.Join(err, s.closeLog(), s.mem.Close())
}
