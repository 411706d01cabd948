// Package handshake connects two workers: [Conn] is one connection as a state machine. Package ucp passes
// events to it and executes the actions that it returns. The package does no I/O, starts no goroutine, reads no clock
// and has no global state, so that a connection can be replayed as a script.
//
// # Messages
//
//	initiator                                responder
//	  NeedLane(rma)
//	    OpenLane ── LaneOpened
//	    REQUEST {lane, EP address} ────────────►  OpenLane ── LaneOpened
//	                                              ConnectLane ── LaneConnected
//	    ConnectLane  ◄──────────── REPLY {lane, EP address}
//	      LaneConnected
//	    ActivateLane
//	    ACK {lane} ────────────────────────────►  ActivateLane
//
// The initiator proposes a lane, which is a pair of resources; the responder
// accepts or rejects it. After a rejection the initiator proposes the next best
// pair, and fails the EP when none is left. If both sides propose the same lane
// at once, the proposal of the worker with the smaller UUID wins and the other
// worker replies to it. A lane over a transport that connects to an iface address is
// active at once, without a message. It is not active for active messages, because their
// receiver must know the connection first.
//
// # Roles
//
// A [wireup.Role] has one lane. The bandwidth roles have up to [selection.Rails] lanes with weights in
// proportion to bandwidth, over one transport and different devices; both sides choose the
// same ones. One lane may have several roles. A connection works without lanes of a
// bandwidth role.
//
// # A lane that breaks
//
//	side where it breaks                     other side
//	  LaneFailed
//	    RetireLane
//	    DROP {lane, why} ──────────────────►  CloseLane
//	    CloseLane  ◄─────────────── DROPPED {lane}
//
// The lane loses all its roles, and each role that is needed gets the next best pair.
// Neither side proposes the broken pair again, except for a trial. The EP of the broken lane stays open until the other
// side has closed its own, because the other side would take an earlier close for the end of the connection. If
// the status means that the peer is gone, the connection fails. If a role has no pair left,
// the side that needs the role loses it (LoseRoles), and the connection continues with the lanes of
// its other roles and with the lanes that the peer proposed. Without such lanes, or without the role
// am, the connection fails.
//
// # A failed pair that works again
//
//	side that had proposed the lane          other side
//	  TimePassed
//	    REQUEST {lane, trial} ─────────────►  OpenLane, ConnectLane
//	    ConnectLane  ◄──────────── REPLY
//	    ACK ───────────────────────────────►
//	    ProbeLane: PROBE over the lane ────►  ReturnLane, QuiesceLane of other lanes
//	    ReturnLane, QuiesceLane  ◄── PROBED
//	      LaneQuiesced
//	    MOVE {other lane} ────────────────►  DrainLane
//	    ActivateLane  ◄─────────── MOVED         LaneDrained
//
// After [ConnParams.Retry], and then after growing pauses, the side that had proposed the lane proposes its pair
// again. The lane has no roles until a message has arrived over it. Then each side moves its roles to
// the lane: puts, gets and atomics when nothing is in flight over the other lane, and active
// messages when the peer has handled everything that arrived over the other lane. When both sides have moved
// all roles from the other lane, both close it. If the lane on trial fails, the roles remain on the other lane, and
// the failure has no further effect.
//
// # An idle connection
//
//	one side                                 other side
//	  NoOperations                             NoOperations
//	    QuiesceLane, LaneQuiesced                      QuiesceLane, LaneQuiesced
//	  NoOperations
//	    IDLE ──────────────────────────────►   CheckIdle
//	                                             IdleChecked
//	    CheckIdle  ◄──────────────── AGREED
//	      IdleChecked
//	    WentIdle, RetireLane
//	    DROP {all lanes} ──────────────────►   WentIdle, CloseLane
//	    CloseLane  ◄──────────────  DROPPED
//
// A side that has had no operations for a while quiesces its lanes: an operation then causes NeedLane, and the roles return
// to the lanes at once, without a message. A side whose lanes are quiesced sends IDLE to close them. The other side agrees if
// its lanes are quiesced too, or if it has none. From then on it must wait until the first side has closed the lanes, or has
// sent RESUME because it has operations. The connection remains without lanes, and the next NeedLane of either
// side opens some.
//
// # A pair that does not lead to the peer
//
// A lane may fail while it connects. For example, the device may belong to a
// hypervisor and have the same address on each host. Such a failure, ErrUnreachable included, concerns
// the pair and not the peer. The next pair is tried, and the connection fails when no pair is
// left. If the pair failed before the peer knew of its lane, a DROP reports the pair as soon as
// the peer's endpoint id is known, so that the peer does not wait for the same failure. PathFailed does the
// same for a pair over which a transport connection has failed.
//
// # Retransmission and timeout
//
// A side that waits for a reply retransmits its message after one second, two, four
// and so on. The reply to a retransmitted REQUEST, REPLY or DROP is the same as to the first one.
// So a handshake survives lost messages, for example when a worker has no room
// for them or a transport fails. A side that needs a lane fails with StatusTimedOut
// when the handshake has not progressed for [ConnParams.Timeout]; a side that
// needs no lane waits without limit. A Conn reads no clock: every event has its time, and
// [Conn.Deadline] returns the time at which TimePassed is due.
//
// A Conn is used by the goroutine that owns the worker.
package handshake
