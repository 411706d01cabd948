package tuple

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/stats"
)

// Config limits the queues.
type Config struct {
	Max        int  // tags that have a queue, of a worker as receiver and of a connection as sender
	MaxMessage int  // maximum length of a message through a queue, in bytes
	Wildcards  bool // receives whose mask is not full are allowed
}

// Stats counts events of one worker, as sender and as receiver.
type Stats struct {
	Copies   stats.Counter // messages through queues that the sender copied
	Messages stats.Counter // control messages

	sends, receives     stats.Counter // messages that went through queues
	opened, resent      stats.Counter
	wildcards, probes   stats.Counter // queues closed for a receive with a mask, or one that no queue accepts; for a probe
	others, canceled    stats.Counter // for a message from another peer; for a canceled receive
	evicted, busy, long stats.Counter // for another tuple; no connection was free; for a message that no queue accepts
	refused             stats.Counter // requests for a queue that were rejected
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

// Peer is the remote side of a connection.
type Peer interface {
	// SendControl sends a wire.Tuple to the peer, behind the messages and control messages that were sent before. It does not
	// wait for messages that lack credit. It does nothing if the connection has ended.
	SendControl(tag uint64, kind wire.TupleKind, number uint32, value uint64)
}
