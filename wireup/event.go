package wireup

import (
	"time"

	"github.com/gucx/gucx/ucs"
)

// EventKind is what happened to a connection.
type EventKind uint8

// Events.
const (
	NeedLane      EventKind = iota // an operation needs a lane for Role
	MsgReceived                    // Msg arrived for this connection
	LaneOpened                     // Lane has a uct EP, whose address is EPAddr
	LaneConnected                  // Lane is connected to the peer's EP
	LaneFailed                     // Lane could not be opened or connected, or broke
	PathFailed                     // no transport connection is possible between Local and Remote
	Closed                         // the user closed the connection, or it failed for Status
	TimePassed                     // Conn.Deadline has come
	SendingFailed                  // messages that were sent may not arrive
	NoCarrier                      // no message can be sent: trials end, for Status
	LaneLeft                       // nothing is in flight over Lane for the roles of LeaveLane
	LaneDrained                    // what has come over Local from Remote is handled; Status is that of DrainLane
)

// Event is an event that package ucp passes to a [Conn].
type Event struct {
	Kind   EventKind
	Role   Role       // NeedLane
	Lane   int        // LaneOpened, LaneConnected, LaneFailed
	Local  int        // PathFailed, LaneDrained: the local resource
	Remote int        // PathFailed, LaneDrained: the remote resource
	EPAddr []byte     // LaneOpened; nil for a lane that connects to an iface
	Status ucs.Status // LaneFailed, PathFailed, Closed: why; StatusOK if it was closed in order
	Msg    *Msg       // MsgReceived
	// Now is the time since any fixed moment. It does not go back.
	Now time.Duration
}

// ActionKind is what package ucp must do.
type ActionKind uint8

// Actions.
const (
	SendMsg      ActionKind = iota // send Msg to the peer
	OpenLane                       // make the uct EP of Lane, then LaneOpened or LaneFailed
	ConnectLane                    // connect Lane to the peer's EPAddr, then LaneConnected or LaneFailed
	ActivateLane                   // Lane is ready for Roles
	RetireLane                     // Lane broke, for Status, or was left (StatusOK): use it no more; CloseLane follows
	CloseLane                      // close the uct EP of Lane, for Status; its number may be used again
	LoseRoles                      // no pair is left for Roles, for Status; other lanes are
	FailEP                         // the connection is over, for Status
	ProveLane                      // send Msg over Lane itself
	ReturnLane                     // Lane works, over a pair that had failed; Roles that were lost have pairs again
	LeaveLane                      // use Lane no more for Roles, then LaneLeft when nothing is in flight
	DrainLane                      // handle what has arrived at Local from Remote, then LaneDrained with Status
)

// Action is what a [Conn] wants done. Actions are carried out in order; the
// events that they cause are handed in after the last one.
type Action struct {
	Kind     ActionKind
	Lane     int
	Local    int // OpenLane, DrainLane: the local resource
	Remote   int // OpenLane, DrainLane: the remote resource
	ViaIface bool
	EPAddr   []byte // ConnectLane
	Roles    Roles
	Msg      *Msg
	Again    bool       // SendMsg: it repeats what was not answered
	Status   ucs.Status // FailEP, LoseRoles, RetireLane, CloseLane: why
	Why      string     // FailEP: for people
}
