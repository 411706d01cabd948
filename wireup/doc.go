// Package wireup decides how two workers reach each other. It is pure: it does no
// I/O, starts no goroutine, reads no clock and keeps no global state, so that every
// decision can be tested as a table and replayed as a script.
//
//   - [Address] is what a worker hands out; [Address.Pack] and [UnpackAddress].
//   - [Rank] scores every pair of a local and a remote resource for one
//     [Role]; the order is the same on both sides. [Explain] prints it.
//   - [Msg] is a handshake message.
//   - [Conn] is the handshake of one connection as a state machine: package ucp
//     hands it events and carries out the actions that it returns.
//
// # The handshake
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
// accepts or refuses it. After a refusal the initiator proposes the next best
// pair, and fails the EP when none is left. When both sides propose the same lane
// at once, the proposal of the worker with the smaller uuid stands and the other
// worker answers it. A lane over a transport that connects to an iface address is
// active at once and without a message, except for active messages, whose
// receiver must know the connection.
//
// # Roles
//
// A [Role] has one lane. The bandwidth roles have up to [Rails] lanes with weights in
// proportion to bandwidth, over one transport and different devices; both sides choose the
// same ones. One lane may have several roles. A connection goes on without lanes of a
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
// The lane leaves all its roles, and each role that is needed gets the next best pair.
// Nobody proposes the pair again. The EP of the broken lane stays until the other side
// has closed its own: that side would take the closing for the end of the connection. When
// the reason says that the peer is gone, the connection ends. When a role has no pair left,
// the side that needs the role loses it (LoseRoles) and goes on with the lanes of its other
// roles, and with those that the peer has asked for. Without such lanes, and without the role
// am, the connection ends.
//
// # A pair that does not lead to the peer
//
// A lane may fail while it connects: of two network devices the first may be one of a
// hypervisor, with the same address on each host. Such a failure, ErrUnreachable included, is
// the pair's and not the peer's. The next pair follows, and the connection ends when no pair is
// left. A pair that failed before the peer knew of its lane is named in a DROP too, as soon as
// the peer can be named, so that the peer does not wait for the same failure. The same holds for
// a pair of which the caller says, by PathFailed, that a transport connection over it has failed.
//
// # Silence and loss
//
// A side that waits repeats what was not answered, after one second, two, four
// and so on; a REQUEST, a REPLY or a DROP that was seen before is answered as the first one
// was. So a handshake survives messages that are lost, as when a worker has no room
// for them or a transport breaks. A side that needs a lane fails, with StatusTimedOut,
// when the peer has not moved the handshake on for [ConnParams.Timeout]; a side that
// needs none waits. A Conn reads no clock: every event says when it is, and
// [Conn.Deadline] when TimePassed is due.
//
// A Conn is used by the goroutine that owns the worker.
package wireup
