package handshake

import (
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// EventKind is the type of an Event.
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
	TimePassed                     // the time of Conn.Deadline has passed
	SendingFailed                  // messages that were sent may be lost
	NoCarrier                      // no message can be sent: trials end with Status
	LaneQuiesced                   // nothing is in flight over Lane for the roles of QuiesceLane
	LaneDrained                    // everything that arrived at Local from Remote was handled; Status is that of DrainLane
	NoOperations                   // this side has had no operations for a while
	IdleChecked                    // the result of CheckIdle: StatusOK if this side has no operations
)

// Event is an event that package ucp passes to a [Conn].
type Event struct {
	Kind   EventKind
	Role   wireup.Role // NeedLane
	Lane   int         // LaneOpened, LaneConnected, LaneFailed
	Local  int         // PathFailed, LaneDrained: the local resource
	Remote int         // PathFailed, LaneDrained: the remote resource
	EPAddr []byte      // LaneOpened; nil for a lane that connects to an iface
	Status ucs.Status  // LaneFailed, PathFailed, Closed, IdleChecked: the reason; StatusOK for a graceful close
	Msg    *Msg        // MsgReceived
	// Now is the time since any fixed moment. It is monotonic.
	Now time.Duration
}

// ActionKind is the type of an Action.
type ActionKind uint8

// Actions.
const (
	SendMsg      ActionKind = iota // send Msg to the peer
	OpenLane                       // open the uct EP of Lane; LaneOpened or LaneFailed follows
	ConnectLane                    // connect Lane to the peer's EPAddr; LaneConnected or LaneFailed follows
	ActivateLane                   // Lane is ready for Roles
	RetireLane                     // stop using Lane: it broke (Status), or both sides moved its roles (StatusOK); CloseLane follows
	CloseLane                      // close the uct EP of Lane, with Status as the reason; its number may be used again
	LoseRoles                      // no pair is left for Roles, with Status as the reason; the connection continues
	FailEP                         // the connection failed with Status
	ProbeLane                      // send Msg over Lane itself, to test it
	ReturnLane                     // Lane, over a pair that had failed, works; Roles had lost their pairs and have one again
	QuiesceLane                    // stop using Lane for Roles; LaneQuiesced follows when nothing is in flight
	DrainLane                      // handle everything that arrived at Local from Remote; LaneDrained with Status follows
	CheckIdle                      // handle everything that arrived over all lanes; IdleChecked follows
	WentIdle                       // the lanes close because neither side has operations; RetireLane or CloseLane follows for each
	KeepLanes                      // the lanes remain open: the peer has operations, got no IDLE or has not replied (Status)
)

// Action is a step that the caller of a [Conn] must execute. The caller executes the actions of one call
// in order, and passes the events that they cause after the last one.
type Action struct {
	Kind     ActionKind
	Lane     int
	Local    int // OpenLane, DrainLane: the local resource
	Remote   int // OpenLane, DrainLane: the remote resource
	ViaIface bool
	EPAddr   []byte // ConnectLane
	Roles    Roles
	Msg      *Msg
	Again    bool       // SendMsg: a retransmission
	Status   ucs.Status // FailEP, LoseRoles, RetireLane, CloseLane, KeepLanes: the reason
	Why      string     // FailEP: the reason as text
}
