package base

import "github.com/gucx/gucx/ucs/stats"

// Traffic counts the messages of an iface from the counts that its connections have in any case. The zero value is ready;
// its methods, but AddStats and AddSent, must be called by the owner of the iface.
type Traffic struct {
	sent, received             stats.Counter
	closedSent, closedReceived uint64 // over connections that are closed
}

// AddStats adds the counters what_sent and what_received to a node.
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
