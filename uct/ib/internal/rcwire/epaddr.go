package rcwire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// EPAddr is the address of an rc endpoint. Packed, big endian:
//
//	 0  u8   version, 2
//	 1  u8   path MTU, code of verbs.MTU
//	 2  u8   maximum reads and atomics that it accepts at a time
//	 3  u8   zero
//	 4  u32  QPN, 24 bits
//	 8  u32  first PSN that it sends, 24 bits
//	12  u32  maximum length of a message that it receives, in bytes
//	16  u16  credits: maximum number of messages before it returns credits
//	18  u16  zero
type EPAddr struct {
	MTU      verbs.MTU
	MaxReads uint8
	QPN      uint32
	PSN      uint32
	SegLen   uint32
	Credits  uint16
}

// EPAddrLen is the packed length in bytes.
const EPAddrLen = 20

const (
	version = 2
	max24   = 1<<24 - 1
)

// Append packs a.
func (a EPAddr) Append(b []byte) []byte {
	b = append(b, version, byte(a.MTU), a.MaxReads, 0)
	b = binary.BigEndian.AppendUint32(b, a.QPN)
	b = binary.BigEndian.AppendUint32(b, a.PSN)
	b = binary.BigEndian.AppendUint32(b, a.SegLen)
	b = binary.BigEndian.AppendUint16(b, a.Credits)
	return append(b, 0, 0)
}

// ParseEPAddr checks and unpacks b, which may come from an untrusted peer. Errors wrap
// ErrInvalidAddr.
func ParseEPAddr(b []byte) (EPAddr, error) {
	if len(b) != EPAddrLen {
		return EPAddr{}, fmt.Errorf("%w: endpoint address of %d bytes, want %d", uct.ErrInvalidAddr, len(b), EPAddrLen)
	}
	if b[0] != version {
		return EPAddr{}, fmt.Errorf("%w: endpoint address version %d, want %d", uct.ErrInvalidAddr, b[0], version)
	}
	a := EPAddr{
		MTU:      verbs.MTU(b[1]),
		MaxReads: b[2],
		QPN:      binary.BigEndian.Uint32(b[4:]),
		PSN:      binary.BigEndian.Uint32(b[8:]),
		SegLen:   binary.BigEndian.Uint32(b[12:]),
		Credits:  binary.BigEndian.Uint16(b[16:]),
	}
	if err := a.check(b[3] | b[18] | b[19]); err != nil {
		return EPAddr{}, fmt.Errorf("%w: %w", uct.ErrInvalidAddr, err)
	}
	return a, nil
}

func (a EPAddr) check(reserved byte) error {
	switch {
	case reserved != 0:
		return errors.New("reserved bytes set")
	case a.MTU.Bytes() == 0:
		return fmt.Errorf("path MTU code %d", a.MTU)
	case a.QPN == 0 || a.QPN > max24:
		return fmt.Errorf("QPN %#x", a.QPN)
	case a.PSN > max24:
		return fmt.Errorf("PSN %#x", a.PSN)
	case a.SegLen == 0:
		return errors.New("no segment length")
	case a.Credits == 0:
		return errors.New("no credits")
	}
	return nil
}
