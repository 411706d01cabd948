package ucp

import (
	"context"

	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// epClass is the class of an EP, by the side that has made the connection. Each class has its own counters.
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

// classStats has the counters of the EPs of a class, without EPs that never connect. A send or receive of a message updates no
// counter: countTraffic computes the bytes from the credit of the connection.
type classStats struct {
	connected stats.Counter // EPs that connected
	closed    stats.Counter // EPs that connected and are closed
	sent      stats.Counter // bytes of credit that sent messages used: their length, and messageCharge for each
	received  stats.Counter // the same for messages of peers
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

// trafficProtocol updates the counters of the classes of EPs.
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

// countedTraffic is the part of the traffic of a connection that the counters include already.
type countedTraffic struct {
	sent, received int64 // bytes
	stalls         uint64
}

// countTraffic adds the credit that messages of the EP have used since the last call to the counters. A canceled send
// returns its credit, so the sum may decrease. Then countTraffic adds nothing until the sum exceeds its last value.
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

// Snapshot updates the counters of [Worker.Stats] that are derived from the state of EPs and transports, and then reads all
// counters. Derived counters are sent_bytes, received_bytes and waits_for_credit of the classes of EPs, messages_sent and
// messages_received of sm, requests_sent and requests_received of tcp, and work_requests of rc and xrc. Snapshot uses
// [Worker.Inspect], so any goroutine except the owner may call it. If Inspect returns an error, Snapshot returns it with
// the counters that were not updated.
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
