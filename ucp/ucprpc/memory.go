package ucprpc

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// methodOpen returns the packed key of memory by name.
var methodOpen = Method{Number: 0xff00, Idempotent: true}

// Publish lets all peers access mem under a name, with the access rights of mem: they open it by [Client.Open] or [Peer.Open]. If
// memory was already published under the name, peers that open the name later get mem. The caller must call Unpublish before
// it closes mem.
func (n *node) Publish(name string, mem *ucp.Mem) error {
	if mem == nil {
		return fmt.Errorf("ucprpc: publish %.40q: %w: no memory", name, ucs.ErrInvalidParam)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.memory[name] = mem
	return nil
}

// Unpublish removes a name: peers can no longer open it. Peers that have opened it can access the memory until it is
// closed.
func (n *node) Unpublish(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.memory, name)
}

// open is the handler of methodOpen.
func (n *node) open(c *Call) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	mem := n.memory[string(c.Data)]
	if mem == nil {
		return &Error{Code: CodeNoMemory, Text: string(c.Data[:min(len(c.Data), 40)])}
	}
	c.Reply = append(c.Reply, mem.Pack()...)
	return nil
}

// Memory is memory that another process publishes. Any goroutine may call its methods; a handler that runs inline may call Len
// and StartPut only. After a failure of the connection, memory of [Client.Open] opens the name again.
type Memory struct {
	k      *link // of Client.Open; otherwise nil
	p      *Peer // of Peer.Open; otherwise nil
	name   string
	opened atomic.Pointer[openedMemory]
}

// openedMemory is a key and the connection for which it was unpacked.
type openedMemory struct {
	p   *Peer
	key *ucp.RKey
}

// Open opens memory of the server by name. It fails with CodeNoMemory if the server publishes no memory under the name.
func (cl *Client) Open(ctx context.Context, name string) (*Memory, error) {
	return (&Memory{k: cl.link(), name: name}).open(ctx)
}

// Open opens memory that the peer publishes, for accesses over this connection only. Errors: as of [Client.Open].
func (p *Peer) Open(ctx context.Context, name string) (*Memory, error) {
	return (&Memory{p: p, name: name}).open(ctx)
}

// open opens the memory for the first time.
func (m *Memory) open(ctx context.Context) (*Memory, error) {
	err := m.do(ctx, func(p *Peer) error {
		_, err := m.keyFor(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// do calls f with the connection, and again with the next one if f has failed because the connection has.
func (m *Memory) do(ctx context.Context, f func(p *Peer) error) error {
	if m.k == nil {
		return f(m.p)
	}
	return m.k.do(ctx, true, f)
}

// keyFor returns a key for a connection.
func (m *Memory) keyFor(ctx context.Context, p *Peer) (*ucp.RKey, error) {
	if o := m.opened.Load(); o != nil && o.p == p {
		return o.key, nil
	}
	return m.openOver(ctx, p)
}

// openOver requests a key for a connection, and replaces the previous one.
func (m *Memory) openOver(ctx context.Context, p *Peer) (key *ucp.RKey, err error) {
	packed, err := p.Call(ctx, methodOpen, []byte(m.name), nil)
	if err == nil {
		p.l.runOnLoop(func() { key, err = m.unpack(p, packed) })
	}
	return key, err
}

// unpack unpacks a key for a connection. Only the driver of the connection may call it. The key is closed with the worker.
func (m *Memory) unpack(p *Peer, packed []byte) (key *ucp.RKey, err error) {
	if err = p.gone; err == nil {
		key, err = p.ep.Unpack(packed)
	}
	if err != nil {
		return nil, &Error{Code: CodeUnavailable, Err: err}
	}
	m.opened.Store(&openedMemory{p, key})
	return key, nil
}

// Len returns the length of the memory in bytes at the time at which it was last opened.
func (m *Memory) Len() uint64 { return m.opened.Load().key.Len() }

// Get reads len(buf) bytes from offset off. If the transport can read remote memory, the server does not take part. If
// the server writes at the same time, buf may get a mixture of old and new bytes. Errors: those of [Client.Call], and
// ucs.ErrRemoteAccess for an access outside of the memory. Get repeats the operation if the connection fails.
func (m *Memory) Get(ctx context.Context, buf []byte, off uint64) error {
	return m.access(ctx, opGet, buf, off)
}

// Put writes buf at offset off. It returns when the bytes are in the memory of the server. Put repeats the operation if
// the connection fails. Errors as of Get.
func (m *Memory) Put(ctx context.Context, buf []byte, off uint64) error {
	return m.access(ctx, opPut, buf, off)
}

func (m *Memory) access(ctx context.Context, op opType, buf []byte, off uint64) error {
	return m.do(ctx, func(p *Peer) error {
		key, err := m.keyFor(ctx, p)
		if err == nil {
			err = checkAccess(key, buf, off)
		}
		if err == nil {
			_, err = p.execute(ctx, operation{op: op, data: buf, key: key, off: off})
		}
		return err
	})
}

// checkAccess returns an error for an access outside of the memory of a key.
func checkAccess(key *ucp.RKey, buf []byte, off uint64) error {
	if n := key.Len(); off > n || uint64(len(buf)) > n-off {
		return &Error{Code: CodeFailed, Err: fmt.Errorf("%d bytes at %d of %d: %w", len(buf), off, n, ucs.ErrRemoteAccess)}
	}
	return nil
}

// StartPut begins a put and returns. When the bytes are in the memory of the other process, or the put has failed, the
// goroutine that makes progress calls done; for done the rules of inline handlers apply: see HandlerConfig. The program
// must not modify buf before that. StartPut is for handlers that run inline, and for done itself. It does not wait for a
// connection or repeat the put if the connection fails: done gets CodeLost, CodeUnavailable or CodeDraining. If the client has
// connected again, StartPut first opens the memory over the new connection.
//
// If StartPut returns an error, CodeBusy or ucs.ErrRemoteAccess, it does not call done. Otherwise done is called once, and
// never before StartPut has returned to a handler that runs inline on the worker of the memory. If the handler runs on
// another worker, such as a handler of a server that writes to memory of [Client.Open], done may run at the same time.
func (m *Memory) StartPut(buf []byte, off uint64, done func(err error)) error {
	o, p := m.opened.Load(), m.p
	if m.k != nil {
		p = m.k.state.Load().p
	}
	if p == o.p {
		return o.startPut(buf, off, done)
	}
	return p.Start(methodOpen, []byte(m.name), nil, func(packed []byte, err error) {
		if err == nil {
			_, err = m.unpack(p, packed)
		}
		if err == nil {
			err = m.opened.Load().startPut(buf, off, done)
		}
		if err != nil {
			done(err)
		}
	})
}

// startPut is StartPut over the connection of the key.
func (o *openedMemory) startPut(buf []byte, off uint64, done func(err error)) error {
	if err := checkAccess(o.key, buf, off); err != nil {
		return err
	}
	return o.p.startOperation(operation{op: opPut, data: buf, key: o.key, off: off, onDone: done})
}
