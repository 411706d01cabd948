package ucprpc

import (
	"cmp"
	"fmt"
	"maps"
	"sync"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Method identifies a handler: by Name, of at most 255 bytes, or by Number if Name is empty. A call by number is about
// 20 ns faster. Numbers from 0xff00 are reserved for this package.
type Method struct {
	Name   string
	Number uint16
	// Idempotent means that the handler may run more than once: a Client repeats such calls if the connection fails
	// before the reply.
	Idempotent bool
}

// Handler handles a request, and returns nil or an error. The caller gets an *Error with the code of that
// error, or CodeFailed. If the handler returns ErrPending, the call lasts until Call.Finish.
type Handler func(c *Call) error

// HandlerConfig configures how a handler runs. The zero value runs it in a goroutine, when the whole request has arrived.
type HandlerConfig struct {
	// Inline runs the handler in the goroutine that makes progress for all peers, which is several times faster for
	// a handler that takes at most a few microseconds. The handler must not wait, nor call methods of Peer, Client or
	// Server that have a context parameter: a handler that needs another process calls Peer.Start or Memory.StartPut, and
	// returns ErrPending. It must not use Call.Data after it has returned.
	Inline bool
	// OnDemand runs the handler before the data of a large request has arrived: see Call.Recv. Not with Inline.
	OnDemand bool
}

type handler struct {
	HandlerConfig
	f Handler
}

// Handlers are the handlers of a Server or a Client. The zero value has none. Listen and Dial copy them, so several
// servers and clients may use one configuration.
type Handlers struct{ byMethod map[Method]*handler } // the keys have a name or a number, and no other field

// Handle sets the handler of a method.
func (h *Handlers) Handle(m Method, cfg HandlerConfig, f Handler) {
	if h.byMethod == nil {
		h.byMethod = map[Method]*handler{}
	}
	if m.Idempotent = false; m.Name != "" {
		m.Number = 0
	}
	h.byMethod[m] = &handler{cfg, f}
}

// find returns the handler for the number or name in a header; nil if there is none.
func (h *Handlers) find(number uint16, name []byte) *handler {
	if len(name) > 0 {
		number = 0
	}
	return h.byMethod[Method{Name: string(name), Number: number}]
}

// Limits limits the resources that peers and callers use. A field of 0 means its default.
type Limits struct {
	// PeerCalls and WorkerCalls limit the requests in progress of one peer, and of all peers of a worker. A request is
	// in progress until its handler has returned and the peer has received the reply. Further requests are rejected
	// with CodeBusy, further one-way messages are dropped. 0 means 1,024 and 16,384.
	PeerCalls, WorkerCalls int
	// PeerBytes and WorkerBytes limit the bytes of these requests and their replies. A single request may exceed them.
	// 0 means 64 MiB and 256 MiB.
	PeerBytes, WorkerBytes int64
	// MaxRequest and MaxReply limit the length of a request and of a reply, in bytes. 0 means 16 MiB.
	MaxRequest, MaxReply int
	// MaxCalls limits the operations of callers in progress on a worker. Further operations fail with CodeBusy. 0 means
	// 4,096.
	MaxCalls int
}

func (c *Limits) setDefaults() error {
	for _, n := range []int{c.PeerCalls, c.WorkerCalls, c.MaxRequest, c.MaxReply, c.MaxCalls, int(min(c.PeerBytes, c.WorkerBytes))} {
		if n < 0 {
			return fmt.Errorf("ucprpc: a limit of %d: %w", n, ucs.ErrInvalidParam)
		}
	}
	c.PeerCalls, c.WorkerCalls = cmp.Or(c.PeerCalls, 1024), cmp.Or(c.WorkerCalls, 16384)
	c.PeerBytes, c.WorkerBytes = cmp.Or(c.PeerBytes, 64<<20), cmp.Or(c.WorkerBytes, 256<<20)
	c.MaxRequest, c.MaxReply, c.MaxCalls = cmp.Or(c.MaxRequest, 16<<20), cmp.Or(c.MaxReply, 16<<20), cmp.Or(c.MaxCalls, 4096)
	return nil
}

// node is the common state of the loops of a Server or a Client.
type node struct {
	c        *ucp.Context
	cfg      Limits
	handlers Handlers
	serves   bool                     // a goroutine of each loop always drives it
	onGone   func(p *Peer, err error) // called when a connection has failed; may be nil
	stats    *stats.Node

	mu     sync.Mutex
	memory map[string]*ucp.Mem // published; under mu
	closed *loopStats          // the sums of closed loops; nil at a server, which closes all loops at once; under mu
}

// init copies the configuration.
func (n *node) init(c *ucp.Context, limits Limits, handlers *Handlers) error {
	n.c, n.cfg, n.handlers, n.stats = c, limits, Handlers{maps.Clone(handlers.byMethod)}, stats.New("ucprpc")
	n.memory = map[string]*ucp.Mem{}
	n.handlers.Handle(methodOpen, HandlerConfig{Inline: true}, n.open)
	return n.cfg.setDefaults()
}

// Stats returns the root of a tree of counters, with one node for each worker. At a client, each connection has a worker, and
// the node "closed" has the sums of those that are closed.
func (n *node) Stats() *stats.Node { return n.stats }

// removeStats removes the counters of a closed loop from the tree and adds them to closed. Otherwise the tree would refer to
// the loop, and grow with each attempt to connect.
func (n *node) removeStats(l *loop) {
	if n.closed == nil {
		return
	}
	l.shown.Remove()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed.add(&l.stats)
}

// loopStats are the counters of a loop. That of code 0 counts the requests that were passed to a handler. Those of other
// codes count the requests that were rejected with the code or, if they are one-way messages, dropped.
type loopStats [len(counterNames)]stats.Counter

// Further counters.
const (
	violations  = CodeClosed + 1 + iota // peers that were disconnected because they violated the protocol
	lateReplies                         // replies to abandoned calls
)

var counterNames = [...]string{
	0: "requests", CodeBusy: "rejected_busy", CodeDraining: "rejected_draining", CodeNoMethod: "rejected_no_method",
	CodeTooLong: "rejected_too_long", violations: "violations", lateReplies: "late_replies",
}

func (s *loopStats) addTo(n *stats.Node) {
	for i, name := range counterNames {
		if name != "" {
			n.Add(name, &s[i])
		}
	}
}

// add adds the counts of o.
func (s *loopStats) add(o *loopStats) {
	for i := range s {
		s[i].Add(o[i].Load())
	}
}

// hello begins the private data of a dialer and of a listener; the last byte is the version of the protocol.
const hello = "ucprpc\x00\x01"
