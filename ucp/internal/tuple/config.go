package tuple

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/stats"
)

// Config says how many queues there are, and what for.
type Config struct {
	Max        int  // tags that have a queue: of a worker as receiver, of a connection as sender
	MaxMessage int  // longest message through a queue, in bytes
	Wildcards  bool // there may be receives whose mask is not full
}

// Stats counts what happens at one worker, as sender and as receiver.
type Stats struct {
	Copies   stats.Counter // messages through queues that the sender has copied
	Messages stats.Counter // that were sent beside the data

	sends, receives     stats.Counter // messages that went through queues
	opened, resent      stats.Counter
	wildcards, probes   stats.Counter // queues closed for a receive with a mask, or one that no queue takes; for a probe
	others, canceled    stats.Counter // for a message from another peer; for a receive that was canceled
	evicted, busy, long stats.Counter // for another tuple; as no connection was free; for a message that no queue takes
	refused             stats.Counter // requests for a queue
}

// AddTo adds the counters to a node.
func (s *Stats) AddTo(n *stats.Node) {
	for _, c := range []struct {
		name string
		c    *stats.Counter
	}{
		{"sends", &s.sends}, {"receives", &s.receives}, {"copies", &s.Copies}, {"messages", &s.Messages},
		{"opened", &s.opened}, {"resent", &s.resent}, {"closed_wildcard", &s.wildcards}, {"closed_probe", &s.probes},
		{"closed_other", &s.others}, {"closed_cancel", &s.canceled}, {"closed_evicted", &s.evicted},
		{"closed_busy", &s.busy}, {"closed_long", &s.long}, {"refused", &s.refused},
	} {
		n.Add(c.name, c.c)
	}
}

// Peer is the other side of a connection.
type Peer interface {
	// Tell sends the peer a wire.Tuple, behind the messages that were sent before and before
	// those that are sent later. It does nothing if the connection has ended.
	Tell(tag uint64, kind wire.TupleKind, number uint32, value uint64)
}
