package base

import "github.com/gucx/gucx/ucs/stats"

// Traffic has the counters of the messages of an iface. It derives them from the counts that the protocol of each connection
// needs, so that sending and receiving update no counter. The zero value is ready. Only the owner of the iface may call its
// methods, except for AddStats and AddSent.
type Traffic struct {
	sent, received             stats.Counter
	closedSent, closedReceived uint64 // sums over the closed connections
}

// AddStats adds two counters to a node, whose names are what with the suffixes _sent and _received.
func (t *Traffic) AddStats(n *stats.Node, what string) {
	t.AddSent(n, what+"_sent")
	n.Add(what+"_received", &t.received)
}

// AddSent adds the counter of sent messages to a node, for an iface that does not count those that it receives.
func (t *Traffic) AddSent(n *stats.Node, name string) { n.Add(name, &t.sent) }

// Closed adds the counts of a connection that closes.
func (t *Traffic) Closed(sent, received uint64) {
	t.closedSent += sent
	t.closedReceived += received
}

// Update sets the counters, from the sums of the counts of all open connections.
func (t *Traffic) Update(sent, received uint64) {
	t.sent.Add(t.closedSent + sent - t.sent.Load())
	t.received.Add(t.closedReceived + received - t.received.Load())
}
