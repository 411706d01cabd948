package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/uct"
)

// A packed remote key, docs/wire.md "ib remote key":
//
//	0  u8   version, 1
//	1  u24  zero
//	4  u32  rkey, big endian
const (
	rkeyVersion = 1
	rkeyValue   = 4
	rkeyLen     = 8
)

func appendRKey(b []byte, rkey uint32) []byte {
	b = append(b, rkeyVersion, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, rkey)
}

// UnpackRKey implements uct.RKeyUnpacker. The uct.RKey is the InfiniBand rkey.
func (md *MD) UnpackRKey(b []byte) (uct.RKey, error) {
	rkey, err := parseRKey(b)
	if err != nil {
		return 0, md.opError("unpack rkey", err)
	}
	return uct.RKey(rkey), nil
}

// ReleaseRKey implements uct.RKeyUnpacker. It has no effect, because unpacking uses no resources.
func (md *MD) ReleaseRKey(uct.RKey) {}

func parseRKey(b []byte) (uint32, error) {
	if len(b) != rkeyLen {
		return 0, fmt.Errorf("%w: %d bytes, want %d", uct.ErrInvalidRKey, len(b), rkeyLen)
	}
	if b[0] != rkeyVersion {
		return 0, fmt.Errorf("%w: version %d, want %d", uct.ErrInvalidRKey, b[0], rkeyVersion)
	}
	if b[1]|b[2]|b[3] != 0 {
		return 0, fmt.Errorf("%w: reserved bytes set", uct.ErrInvalidRKey)
	}
	return binary.BigEndian.Uint32(b[rkeyValue:]), nil
}
