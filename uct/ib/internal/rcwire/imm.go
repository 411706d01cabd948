// Package rcwire is what rc endpoints send each other: the immediate value that
// goes with every message, and the endpoint address. It is shared by the
// transports that speak rc. Layouts are in docs/wire.md.
package rcwire

// Imm is the immediate of a send. It is the header of an active message: nothing
// of ours lies in front of the payload.
//
//	31..16  credits: how many messages the sender of this one has taken in from
//	        its receiver since it last told
//	15..6   zero
//	5       control: no active message
//	4..0    active message id; with control 0, or, and no credits, 1 from a sender
//	        that disconnects, or 2 with a message of what extends the transport
type Imm uint32

const (
	immID       = 1<<5 - 1
	immControl  = 1 << 5
	immReserved = 1<<16 - 1<<6

	idDisconnect = 1
	idExtension  = 2

	// MaxCredits is the largest number of credits in one immediate.
	MaxCredits = 1<<16 - 1
)

// AM is the immediate of an active message; id is at most 31, credits at most
// MaxCredits.
func AM(id uint8, credits uint32) Imm { return Imm(credits<<16 | uint32(id)) }

// Credits is the immediate of a message that only returns credits.
func Credits(credits uint32) Imm { return Imm(credits<<16 | immControl) }

// Disconnect is the immediate of the last message of an endpoint that closes.
func Disconnect() Imm { return immControl | idDisconnect }

// Extension is the immediate of a message that is for what extends the transport.
func Extension() Imm { return immControl | idExtension }

// Valid reports whether a value that came from a peer has no reserved bit and is no
// control message that there is not.
func (i Imm) Valid() bool {
	return i&immReserved == 0 && (i&immControl == 0 || i&immID == 0) || i == Disconnect() || i == Extension()
}

// Control reports whether there is no active message.
func (i Imm) Control() bool { return i&immControl != 0 }

// Disconnects reports that the sender has closed its endpoint.
func (i Imm) Disconnects() bool { return i&(immControl|immID) == immControl|idDisconnect }

// Extends reports that the message is for what extends the transport.
func (i Imm) Extends() bool { return i == Extension() }

// ID is the active message id.
func (i Imm) ID() uint8 { return uint8(i & immID) }

// Credits is the number of credits returned.
func (i Imm) Credits() uint32 { return uint32(i >> 16) }
