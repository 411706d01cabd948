package verbslayer

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// address is how a peer reaches a QP and the memory behind it.
//
//	0   [16]  GID; 0 on InfiniBand
//	16  u32   QPN, 24 bits
//	20  u32   first PSN, 24 bits
//	24  u32   rkey
//	28  u16   LID; 0 on Ethernet
//	30  [16]  region
type address struct {
	GID    verbs.GID
	LID    uint16
	QPN    uint32
	PSN    uint32
	RKey   uint32
	Memory layer.Region
}

const (
	addrQPN    = 16
	addrPSN    = 20
	addrRKey   = 24
	addrLID    = 28
	addrMemory = 30
	addrLen    = 46

	maxQPN = 1<<24 - 1
	maxPSN = 1<<24 - 1
)

func (a address) append(b []byte) []byte {
	b = append(b, a.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, a.QPN)
	b = binary.BigEndian.AppendUint32(b, a.PSN)
	b = binary.BigEndian.AppendUint32(b, a.RKey)
	b = binary.BigEndian.AppendUint16(b, a.LID)
	return a.Memory.Append(b)
}

// parseAddress checks an address from the peer. The memory of the peer must have at least need
// bytes.
func parseAddress(b []byte, need int) (a address, err error) {
	if len(b) != addrLen {
		return a, fmt.Errorf("%w: %d bytes, want %d", layer.ErrAddress, len(b), addrLen)
	}
	copy(a.GID[:], b)
	a.QPN = binary.BigEndian.Uint32(b[addrQPN:])
	a.PSN = binary.BigEndian.Uint32(b[addrPSN:])
	a.RKey = binary.BigEndian.Uint32(b[addrRKey:])
	a.LID = binary.BigEndian.Uint16(b[addrLID:])
	if a.QPN == 0 || a.QPN > maxQPN || a.PSN > maxPSN {
		return address{}, fmt.Errorf("%w: QPN %#x, PSN %#x", layer.ErrAddress, a.QPN, a.PSN)
	}
	if a.Memory, err = layer.ParseRegion(b[addrMemory:], need); err != nil {
		return address{}, err
	}
	return a, nil
}
