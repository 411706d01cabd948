package ucp

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	lanes "github.com/gucx/gucx/ucp/internal/lane"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Transports, lanes, handshakes and listeners for tests of package ucp_test.

// Transport is an open transport of a worker.
type Transport = iface

// Lane is one transport endpoint of an EP.
type Lane = lane

// Attr returns the attributes of the transport.
func (i *iface) Attr() *uct.IfaceAttr { return i.attr }

// Domain returns the memory domain of the transport.
func (i *iface) Domain() *region.Domain { return i.domain }

// Index is the index among the transports of the worker.
func (i *iface) Index() int { return i.index }

// Costs returns the costs by which messages choose a protocol.
func (i *iface) Costs() *uct.Measured { return i.costs() }

// CostsFrom returns the source of the costs.
func (i *iface) CostsFrom() string { return i.costsFrom() }

// Port returns the port that the transport shares.
func (i *iface) Port() uct.PortSharer { return i.port }

// EagerLimit is the maximum length of an eager message in one call.
func (i *iface) EagerLimit() int { return i.sends().eager }

// StreamPiece is the maximum length of a part of a stream.
func (i *iface) StreamPiece() int { return i.streamPiece() }

// Iface is an open transport.
type Iface = iface

// Ifaces returns the open transports.
func (w *Worker) Ifaces() []*Iface { return w.ifaces }

// OpenFirst opens the first transport of the context again.
func (w *Worker) OpenFirst() error { return w.openLater(&w.ctx.offers[0]) }

// TransportsText lists the transports with the reasons why they are used.
func (w *Worker) TransportsText() string { return transportsText(w.transportInfos()) }

// Peers returns the peers.
func (w *Worker) Peers() *conn.Peers { return &w.peers }

// Names returns the numbers of EPs to each peer.
func (w *Worker) Names() *conn.Names[*EP] { return &w.names }

// LinkedEPs is the number of EPs that have lanes or connect them.
func (w *Worker) LinkedEPs() int { return len(w.lanes.links) }

// HalfOpen returns the EPs of peers that no listener has accepted.
func (w *Worker) HalfOpen() *conn.HalfOpen[*EP] { return &w.connecting.halfOpen }

// Late returns the peers that connected after their time.
func (w *Worker) Late() *conn.Late { return &w.connecting.late }

// ExpectedPeers is the number of accepted dialers that have not connected yet.
func (w *Worker) ExpectedPeers() int { return len(w.connecting.listening.expected) }

// ExpectedEPs returns the EPs of these dialers.
func (w *Worker) ExpectedEPs() []*EP {
	return slices.Collect(maps.Keys(w.connecting.listening.expected))
}

// UseAddressOf makes w claim the address of another worker.
func (w *Worker) UseAddressOf(other *Worker) {
	w.net.addr.Key, w.net.packed = other.net.addr.Key, other.net.packed
}

// Listeners is the number of open listeners.
func (w *Worker) Listeners() int { return len(w.connecting.listening.listeners) }

// HasListenerEvents reports whether a listener has something for the worker.
func (w *Worker) HasListenerEvents() bool { return w.connecting.listening.hasNews.Load() }

// KeysLen is the length in bytes of the keys that the listener has.
func (l *Listener) KeysLen() int { return l.keysLen }

// DialWith is Dial with a function that makes progress.
func (w *Worker) DialWith(ctx context.Context, network, address string, cfg *DialConfig, until func(context.Context, func() bool) error) (*Peer, error) {
	return w.dial(ctx, network, address, cfg, until)
}

// UseCarrier replaces the carrier of handshakes of later EPs.
func (w *Worker) UseCarrier(f func(*EP) conn.Carrier) { w.carrier = f }

// DeliverHandshake delivers a message of another carrier.
func (w *Worker) DeliverHandshake(msg []byte) {
	w.connecting.inbox.Add(msg)
	w.engine.Raise()
}

// Schedule makes the next Progress handle deferred work of e.
func (e *EP) Schedule() { e.w.schedule(e) }

// Linked reports whether e has lanes or connects them.
func (e *EP) Linked() bool { return e.link != nil }

// Lanes returns the lanes of e, which is Linked.
func (e *EP) Lanes() *lanes.Set[*iface] { return &e.link.lanes }

// Lane returns the lane of a role; nil if there is none.
func (e *EP) Lane(p wireup.Role) *lane { return e.lane(p) }

// LaneInfos describes the lanes.
func (e *EP) LaneInfos() []LaneInfo { return e.laneInfos() }

// RequestLane connects a lane.
func (e *EP) RequestLane(p wireup.Role) { e.requestLane(p) }

// LoseLane makes e lose the lane of a role.
func (e *EP) LoseLane(p wireup.Role, why error) {
	l := e.link
	l.lanes.Use[p], l.lost.roles, l.lost.why = nil, handshake.Set(p), why
	if e.msgs != nil {
		e.msgs.unbind()
	}
}

// BareEP returns an EP of w without a handshake, which sends messages over a transport endpoint.
func BareEP(w *Worker, to uct.EP) *EP {
	e := &EP{w: w, link: &link{}}
	e.link.lanes.Use[wireup.AM] = &lane{AM: to.Ops().AM}
	return e
}

// Handshake returns the state of the connection.
func (e *EP) Handshake() *handshake.Conn { return e.link.conn }

// Carrier returns the carrier of handshake messages.
func (e *EP) Carrier() conn.Carrier { return e.link.carrier }

// RailLanes returns the lanes that share large transfers.
func (e *EP) RailLanes() (list []*lane) {
	l := e.link
	for i := range l.rails.Len() {
		list = append(list, &l.lanes.All[l.rails.lanes[i]])
	}
	return list
}

// SharedFrom returns the length in bytes from which lanes share a transfer.
func (e *EP) SharedFrom() int { return e.link.rails.From(minRMAChunk) }

// RailDomains returns the domains of the lanes that share transfers.
func (e *EP) RailDomains() region.Group { return e.w.lanes.groups[e.link.group] }

// IdleClosed reports whether the lanes were closed because e had no operations.
func (e *EP) IdleClosed() bool { return e.link.idle.closed }

// IdleRefusals is the number of successive refusals of the peer to close the lanes.
func (e *EP) IdleRefusals() int { return e.link.idle.refusals }

// ReservesCarrier reports whether e keeps the connection of its carrier open.
func (e *EP) ReservesCarrier() bool { return e.link.reserved != nil }

// Tried is the number of transports that failed.
func (e *EP) Tried() int { return len(e.link.tried) }

// MovesMessages reports whether the role of messages moves to another lane.
func (e *EP) MovesMessages() bool { return e.link.moves != nil && e.link.moves.oldAM != nil }

// PendingReplies is the number of replies to atomics of the peer that were not sent yet.
func (e *EP) PendingReplies() int { return e.link.answers }

// Within is the time limit of each transport connection.
func (e *EP) Within() time.Duration { return e.link.within }

// Expires is the deadline of a half-open EP.
func (e *EP) Expires() time.Duration { return e.link.expires }

// AttemptWithin returns the time limit of one transport of several.
func AttemptWithin(within time.Duration, paths int) time.Duration {
	return attemptWithin(within, paths)
}

// PutBcopyLen is the maximum length of a put by bcopy.
func (e *EP) PutBcopyLen() int { return e.transport(putStage.role).attr.Put.MaxBcopy }

// SharedLanes is the number of lanes that share large transfers.
func (e *EP) SharedLanes() int { return e.link.rails.Len() }
