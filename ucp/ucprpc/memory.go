package ucprpc

import (
	"context"
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// methodOpen returns the packed key of memory by name.
var methodOpen = Method{Number: 0xff00, Idempotent: true}

// Publish lets all peers access mem under a name, with the rights that mem has. Memory that was published under the
// name is replaced for peers that open it from now on. Unpublish it before mem is closed.
func (s *Server) Publish(name string, mem *ucp.Mem) error {
	if mem == nil {
		return fmt.Errorf("ucprpc: publish %.40q: %w: no memory", name, ucs.ErrInvalidParam)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory[name] = mem
	return nil
}

// Unpublish withdraws memory: peers that open the name from now on do not get it. Peers that have opened it keep the
// right until the memory is closed.
func (s *Server) Unpublish(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.memory, name)
}

// open is the handler of methodOpen.
func (s *Server) open(c *Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem := s.memory[string(c.Data)]
	if mem == nil {
		return &Error{Code: CodeNoMemory, Text: string(c.Data[:min(len(c.Data), 40)])}
	}
	c.Reply = append(c.Reply, mem.Pack()...)
	return nil
}

// Memory is memory that a server publishes. Its methods may be called by any goroutine. After a failure of the
// connection it opens the name again.
type Memory struct {
	k    *link
	name string

	mu  sync.Mutex
	p   *Peer // of key
	key *ucp.RKey
}

// Open opens memory of the server by name. CodeNoMemory if the server publishes none under that name.
func (cl *Client) Open(ctx context.Context, name string) (*Memory, error) {
	m := &Memory{k: cl.link(), name: name}
	_, _, err := m.connected(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// connected returns the connection and a key for it.
func (m *Memory) connected(ctx context.Context) (*Peer, *ucp.RKey, error) {
	for {
		p, err := m.k.connected(ctx)
		if err != nil {
			return nil, nil, err
		}
		m.mu.Lock()
		key, current := m.key, m.p == p
		m.mu.Unlock()
		if current {
			return p, key, nil
		}
		packed, err := p.Call(ctx, methodOpen, []byte(m.name), nil)
		if err == nil {
			key, err = p.unpack(ctx, packed)
		}
		if err == nil {
			m.mu.Lock()
			m.p, m.key = p, key
			m.mu.Unlock()
			return p, key, nil
		}
		if !m.k.repeats(p, err, true) {
			return nil, nil, err
		}
	}
}

// unpack makes a key for this connection. It is closed with the worker.
func (p *Peer) unpack(ctx context.Context, packed []byte) (*ucp.RKey, error) {
	s, err := p.take(opUnpack, packed)
	if err != nil {
		return nil, err
	}
	err = s.run(ctx)
	key := s.key
	s.put()
	return key, err
}

// Len returns the length of the memory in bytes, as it was when it was last opened.
func (m *Memory) Len() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key.Len()
}

// Get reads len(buf) bytes from offset off. The server takes no part where the transport can read by itself. If the
// server writes meanwhile, buf may get a mixture. Errors as of [Client.Call]; an access outside of the memory is
// ucs.ErrRemoteAccess. A get is repeated if the connection fails.
func (m *Memory) Get(ctx context.Context, buf []byte, off uint64) error {
	return m.access(ctx, opGet, buf, off)
}

// Put writes buf at offset off. It returns when the bytes are in the memory of the server. It is repeated if the
// connection fails.
func (m *Memory) Put(ctx context.Context, buf []byte, off uint64) error {
	return m.access(ctx, opPut, buf, off)
}

func (m *Memory) access(ctx context.Context, op slotOp, buf []byte, off uint64) error {
	for {
		p, key, err := m.connected(ctx)
		if err != nil {
			return err
		}
		if n := key.Len(); off > n || uint64(len(buf)) > n-off {
			return &Error{Code: CodeFailed, Err: fmt.Errorf("%d bytes at %d of %d: %w", len(buf), off, n, ucs.ErrRemoteAccess)}
		}
		s, err := p.take(op, buf)
		if err != nil {
			return err
		}
		s.key, s.off = key, off
		err = s.run(ctx)
		s.put()
		if err == nil || !m.k.repeats(p, err, true) {
			return err
		}
	}
}
