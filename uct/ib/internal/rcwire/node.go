package rcwire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/uct"
)

// NodeImm is the immediate of a send on an XRC initiator that EPs share. It contains the number of
// the endpoint that receives the message:
//
//	31..22  credits
//	21..6   number of the receiving endpoint, not 0
//	5       control
//	4..0    active message id, or as in Imm
type NodeImm uint32

const (
	nodeCreditsShift = 22
	nodeNumberShift  = 6
	immLow           = 1<<nodeNumberShift - 1

	// MaxNodeCredits is the maximum number of credits in a NodeImm.
	MaxNodeCredits = 1<<10 - 1
	// MaxNodeNumber is the maximum number of an endpoint.
	MaxNodeNumber = 1<<16 - 1
)

// WithNumber returns the immediate for a message to the endpoint with this number. i has at most
// MaxNodeCredits.
func (i Imm) WithNumber(number uint16) NodeImm {
	return NodeImm(i.Credits()<<nodeCreditsShift | uint32(number)<<nodeNumberShift | uint32(i)&immLow)
}

// Number returns the number of the receiving endpoint.
func (i NodeImm) Number() uint16 { return uint16(i >> nodeNumberShift) }

// Imm returns the Imm of which WithNumber made i.
func (i NodeImm) Imm() Imm { return Imm(uint32(i)>>nodeCreditsShift<<16 | uint32(i)&immLow) }

// Domain identifies an XRC domain. One initiator reaches all endpoints of a domain.
type Domain [16]byte

// NodeAddr is the address of an endpoint in an XRC domain. QPN and PSN in EPAddr are those of an
// initiator, which the endpoint uses if it has no other one to the domain of the peer. Packed, big
// endian, after EPAddr:
//
//	20  16 bytes  domain
//	36  u32       number of the SRQ of the endpoint's iface, 24 bits
//	40  u32       QPN of a target to which such an initiator of the peer can connect
//	44  u16       number of the endpoint, not 0
//	46  u16       zero
type NodeAddr struct {
	EPAddr
	Domain Domain
	SRQN   uint32
	Target uint32
	Number uint16
}

// NodeAddrLen is the packed length in bytes.
const NodeAddrLen = 48

// Append packs a.
func (a NodeAddr) Append(b []byte) []byte {
	b = a.EPAddr.Append(b)
	b = append(b, a.Domain[:]...)
	b = binary.BigEndian.AppendUint32(b, a.SRQN)
	b = binary.BigEndian.AppendUint32(b, a.Target)
	b = binary.BigEndian.AppendUint16(b, a.Number)
	return append(b, 0, 0)
}

// ParseNodeAddr checks and unpacks b, which may come from an untrusted peer. Errors wrap
// ErrInvalidAddr.
func ParseNodeAddr(b []byte) (a NodeAddr, err error) {
	if len(b) != NodeAddrLen {
		return a, fmt.Errorf("%w: endpoint address of %d bytes, want %d: one side may have no XRC domain",
			uct.ErrInvalidAddr, len(b), NodeAddrLen)
	}
	if a.EPAddr, err = ParseEPAddr(b[:EPAddrLen]); err != nil {
		return NodeAddr{}, err
	}
	copy(a.Domain[:], b[EPAddrLen:])
	a.SRQN = binary.BigEndian.Uint32(b[36:])
	a.Target = binary.BigEndian.Uint32(b[40:])
	a.Number = binary.BigEndian.Uint16(b[44:])
	if err := a.checkNode(b[46] | b[47]); err != nil {
		return NodeAddr{}, fmt.Errorf("%w: %w", uct.ErrInvalidAddr, err)
	}
	return a, nil
}

func (a *NodeAddr) checkNode(reserved byte) error {
	switch {
	case reserved != 0:
		return errors.New("reserved bytes set")
	case a.SRQN == 0 || a.SRQN > max24:
		return fmt.Errorf("SRQN %#x", a.SRQN)
	case a.Target == 0 || a.Target > max24:
		return fmt.Errorf("QPN %#x of a target", a.Target)
	case a.Number == 0:
		return errors.New("endpoint 0")
	case a.Credits > MaxNodeCredits:
		return fmt.Errorf("%d credits", a.Credits)
	}
	return nil
}
