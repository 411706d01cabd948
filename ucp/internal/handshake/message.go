package handshake

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gucx/gucx/internal/cursor"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// Limits of a message.
const (
	MaxLanes  = 8 // lanes of a connection, and in one message
	MaxMsgLen = msgHeader + MaxLanes*(msgLaneHeader+math.MaxUint8) + wireup.MaxAddrLen
)

// The packed form; docs/wire.md, "Handshake message".
const (
	msgMagic      = 0x58 // 'X'
	msgVersion    = 4
	msgHeader     = 48
	msgLaneHeader = 5
)

// MsgType is the type of a handshake message.
type MsgType uint8

// Handshake messages, by their number on the wire.
const (
	Request    MsgType = 1  // proposes lanes
	Reply      MsgType = 2  // accepts or rejects each lane of a REQUEST
	Ack        MsgType = 3  // the initiator has connected, or could not connect, each lane of a REPLY
	Disconnect MsgType = 4  // the sender has closed the connection; the status of a lane is the reason of a failure
	Drop       MsgType = 5  // lanes broke at the sender, with the reasons
	Dropped    MsgType = 6  // the reply to DROP: the sender does not use the lanes any more either
	Probe      MsgType = 7  // sent over a lane on trial: if it arrives, the lane works
	Probed     MsgType = 8  // the reply to PROBE
	Move       MsgType = 9  // the sender has moved roles from a lane, and nothing is in flight for them
	Moved      MsgType = 10 // the reply to MOVE: the sender has handled everything that arrived over the lane
	Idle       MsgType = 11 // the sender has no operations, and proposes to close all lanes
	Agreed     MsgType = 12 // the reply to IDLE: the sender has no operations either, and waits for DROP or RESUME
	Refused    MsgType = 13 // the reply to IDLE: the sender has operations, or does not close idle lanes
	Resume     MsgType = 14 // the sender of IDLE has operations: the lanes remain open

	msgTypeEnd = 15
)

// String returns the name in capitals.
func (t MsgType) String() string {
	names := [...]string{"", "REQUEST", "REPLY", "ACK", "DISCONNECT", "DROP", "DROPPED", "PROBE", "PROBED", "MOVE", "MOVED", "IDLE", "AGREED", "REFUSED", "RESUME"}
	if t > 0 && t < msgTypeEnd {
		return names[t]
	}
	return "unknown"
}

// Msg is a handshake message.
type Msg struct {
	Type MsgType
	// Seq counts the connections that the sender made to this peer. Two EPs with equal numbers
	// are the ends of one connection.
	Seq uint32
	// SrcUUID and DstUUID are the workers. A worker ignores a message with another DstUUID.
	SrcUUID, DstUUID uint64
	// SrcEP and DstEP are the ids of the connection in each worker. DstEP is 0 while the
	// sender does not know it.
	SrcEP, DstEP uint64
	// Window is ConnParams.Window of the sender.
	Window uint32
	// Lanes are the lanes that the message is about.
	Lanes []MsgLane
	// Addr is the packed address of the sender; only in a Request without DstEP.
	Addr []byte
}

// MsgLane is one lane in a message.
type MsgLane struct {
	Src, Dst uint8 // resource indices at the sender and at the receiver
	// Roles are the roles of the lane. In messages about a trial other than the REQUEST, it is the number of the trial.
	Roles Roles
	// Status is StatusOK, or the reason why the lane was rejected or broke. In a REQUEST it is the number of the
	// trial, or 0; in MOVE and MOVED it is the number of the MOVE; in IDLE, its replies and RESUME
	// it is the number of the IDLE, which is Roles in a DROP that closes idle lanes, and in its reply.
	Status ucs.Status
	// EPAddr is the address of the sender's uct EP; empty for a lane that connects to an iface.
	EPAddr []byte
}

// Append appends the packed message to b.
func (m *Msg) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, msgMagic, msgVersion, byte(m.Type), byte(len(m.Lanes)))
	b = le.AppendUint32(b, m.Seq)
	b = le.AppendUint64(b, m.SrcUUID)
	b = le.AppendUint64(b, m.DstUUID)
	b = le.AppendUint64(b, m.SrcEP)
	b = le.AppendUint64(b, m.DstEP)
	b = le.AppendUint32(b, m.Window)
	b = le.AppendUint32(b, uint32(len(m.Addr)))
	for i := range m.Lanes {
		l := &m.Lanes[i]
		b = append(b, l.Src, l.Dst, byte(l.Roles), byte(l.Status))
		b = cursor.AppendShort(b, l.EPAddr)
	}
	return append(b, m.Addr...)
}

// UnpackMsg checks and decodes a message, which may come from an untrusted peer. The
// result does not refer to b. ErrInvalidParam.
func UnpackMsg(b []byte) (*Msg, error) {
	if len(b) < msgHeader || len(b) > MaxMsgLen {
		return nil, badMsg("length %d", len(b))
	}
	c := cursor.Cursor{B: b}
	if c.U8() != msgMagic {
		return nil, badMsg("not a handshake message")
	}
	if v := c.U8(); v != msgVersion {
		return nil, badMsg("version %d, want %d", v, msgVersion)
	}
	m := &Msg{Type: MsgType(c.U8())}
	lanes := int(c.U8())
	if m.Type == 0 || m.Type >= msgTypeEnd || lanes > MaxLanes {
		return nil, badMsg("type %d with %d lanes", m.Type, lanes)
	}
	m.Seq = c.U32()
	m.SrcUUID, m.DstUUID = c.U64(), c.U64()
	m.SrcEP, m.DstEP = c.U64(), c.U64()
	m.Window = c.U32()
	addrLen := int(c.U32())
	if m.SrcUUID == 0 || m.SrcEP == 0 || addrLen > wireup.MaxAddrLen {
		return nil, badMsg("source %#x/%d, address of %d bytes", m.SrcUUID, m.SrcEP, addrLen)
	}
	for range lanes {
		m.Lanes = append(m.Lanes, unpackLane(&c))
	}
	m.Addr = append(m.Addr, c.Take(addrLen)...)
	if c.Bad || len(c.B) != 0 {
		return nil, badMsg("length %d does not match %d lanes and an address of %d bytes", len(b), lanes, addrLen)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

func unpackLane(c *cursor.Cursor) MsgLane {
	return MsgLane{
		Src: c.U8(), Dst: c.U8(), Roles: Roles(c.U8()),
		Status: ucs.Status(c.U8()), EPAddr: c.Short(),
	}
}

func (m *Msg) check() error {
	for i := range m.Lanes {
		if m.Lanes[i].Roles&^laneRoles != 0 {
			return badMsg("lane roles %#x", uint8(m.Lanes[i].Roles))
		}
		if m.Lanes[i].Status < 0 {
			return badMsg("lane status %d", m.Lanes[i].Status)
		}
	}
	if m.Type != Disconnect && len(m.Lanes) == 0 {
		return badMsg("%v without lanes", m.Type)
	}
	return nil
}

func badMsg(format string, args ...any) error {
	return fmt.Errorf("handshake message: "+format+": %w", append(args, ucs.ErrInvalidParam)...)
}
