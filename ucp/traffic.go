package ucp

import (
	"context"

	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// epClass is who has made the connection of an EP. Each class has counters of its own.
type epClass uint8

const (
	epMade     epClass = iota // this side
	epAccepted                // the peer
	epToSelf                  // the EP is a loop-back
	epClasses
)

var epClassNames = [epClasses]string{"made", "accepted", "self"}

func (e *EP) class() epClass {
	switch {
	case e.peer.Addr.UUID() == e.w.net.addr.UUID():
		return epToSelf
	case e.origin.accepted:
		return epAccepted
	}
	return epMade
}

// classStats count what the EPs of a class do, without those that never connect. Sending and receiving a message costs
// nothing for it: the bytes follow from the credit of the connection when somebody wants to know them.
type classStats struct {
	connected stats.Counter // EPs that connected
	closed    stats.Counter // of these, those that are closed
	sent      stats.Counter // bytes that messages used of the credit of peers: their length, and messageCharge each
	received  stats.Counter // the same of messages of peers
	creditIn  stats.Counter // credit messages of peers
	creditOut stats.Counter // credit messages to peers
	stalls    stats.Counter // times that messages of an EP waited for credit
}

func (s *classStats) addTo(n *stats.Node) {
	n.Add("connected", &s.connected)
	n.Add("closed", &s.closed)
	n.Add("sent_bytes", &s.sent)
	n.Add("received_bytes", &s.received)
	n.Add("credits_received", &s.creditIn)
	n.Add("credits_sent", &s.creditOut)
	n.Add("waits_for_credit", &s.stalls)
}

// trafficProtocol counts for the classes of EPs.
var trafficProtocol = protocol{
	init: func(w *Worker) {
		for c := range w.stats.traffic {
			w.stats.traffic[c].addTo(w.stats.root.Child("ep@" + epClassNames[c]))
		}
	},
	laneActivated: func(e *EP) {
		if l := e.link; !l.connected {
			l.connected = true
			e.classStats().connected.Inc()
		}
	},
	credited: func(e *EP) {
		e.msgs.stalls.now = false
		e.classStats().creditIn.Inc()
	},
	granted:     func(e *EP) { e.classStats().creditOut.Inc() },
	startedOver: func(e *EP) { e.origin.accepted = false },
	destroyed: func(e *EP) {
		e.countTraffic()
		if e.link != nil && e.link.connected {
			e.classStats().closed.Inc()
		}
	},
}

func (e *EP) classStats() *classStats { return &e.w.stats.traffic[e.class()] }

// countedTraffic is what the counters include of the messages of a connection.
type countedTraffic struct {
	sent, received int64 // bytes
	stalls         uint64
}

// countTraffic counts what the messages of the EP used since the last call. A send that is canceled returns
// its credit: what was counted too early is not counted again.
func (e *EP) countTraffic() {
	m := e.msgs
	if m == nil {
		return
	}
	s := e.classStats()
	if n := m.Sent() - m.counted.sent; n > 0 {
		s.sent.Add(uint64(n))
		m.counted.sent += n
	}
	if n := m.Received() - m.counted.received; n > 0 {
		s.received.Add(uint64(n))
		m.counted.received += n
	}
	s.stalls.Add(m.stalls.total - m.counted.stalls)
	m.counted.stalls = m.stalls.total
}

// Snapshot reads the counters of [Worker.Stats] when those have been updated that are derived from the state of EPs and
// transports: sent_bytes, received_bytes, waits_for_credit of the classes of EPs,
// messages_sent and messages_received of sm, requests_sent and requests_received of tcp, work_requests of rc and xrc. Any
// goroutine, as [Worker.Inspect]. If that returns an error, so does Snapshot, with the counters as they are.
func (w *Worker) Snapshot(ctx context.Context) (stats.Snapshot, error) {
	err := w.Inspect(ctx, (*Worker).countTraffic)
	return w.stats.root.Snapshot(), err
}

// countTraffic updates the counters that are derived from the state of EPs and transports.
func (w *Worker) countTraffic() {
	for _, i := range w.ifaces {
		if u, ok := i.Ext().Stats.(uct.StatsUpdater); ok {
			u.UpdateStats()
		}
	}
	for e := range w.eps.All() {
		e.countTraffic()
	}
}
