// Package rcwire defines the data that rc endpoints exchange: the immediate of every message, and
// the endpoint address. The transports that use rc share it. docs/wire.md describes the layouts.
package rcwire

// Imm is the immediate of a send. It is the header of an active message, so the payload has no
// header of this package.
//
//	31..16  credits: number of messages that the sender has received from the
//	        receiver since it last returned credits
//	15..6   zero
//	5       control: no active message
//	4..0    active message id. With control: 0 for returned credits only; without
//	        credits, 1 for a disconnect, or 2 for a message to an extension of
//	        the transport
type Imm uint32

const (
	immID       = 1<<5 - 1
	immControl  = 1 << 5
	immReserved = 1<<16 - 1<<6

	idDisconnect = 1
	idExtension  = 2

	// MaxCredits is the maximum number of credits in one immediate.
	MaxCredits = 1<<16 - 1
)

// AM returns the immediate of an active message. id is at most 31, credits at most MaxCredits.
func AM(id uint8, credits uint32) Imm { return Imm(credits<<16 | uint32(id)) }

// Credits returns the immediate of a message that only returns credits.
func Credits(credits uint32) Imm { return Imm(credits<<16 | immControl) }

// Disconnect returns the immediate of the last message of an endpoint that is closed.
func Disconnect() Imm { return immControl | idDisconnect }

// Extension returns the immediate of a message to an extension of the transport.
func Extension() Imm { return immControl | idExtension }

// Valid reports whether an immediate from a peer has no reserved bit set and is no unknown control
// message.
func (i Imm) Valid() bool {
	return i&immReserved == 0 && (i&immControl == 0 || i&immID == 0) || i == Disconnect() || i == Extension()
}

// IsControl reports whether the message is a control message.
func (i Imm) IsControl() bool { return i&immControl != 0 }

// IsDisconnect reports whether the sender has closed its endpoint.
func (i Imm) IsDisconnect() bool { return i&(immControl|immID) == immControl|idDisconnect }

// IsExtension reports whether the message is to an extension of the transport.
func (i Imm) IsExtension() bool { return i == Extension() }

// ID returns the active message id.
func (i Imm) ID() uint8 { return uint8(i & immID) }

// Credits returns the number of returned credits.
func (i Imm) Credits() uint32 { return uint32(i >> 16) }
