package dgram

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/verbs"
)

const version = 3

// IfaceAddr is the address of a datagram iface on its device. Packed format, big-endian:
//
//	0  u8   version 3 in the high half; MTU in the low half, code of verbs.MTU: the
//	        maximum length of a received datagram
//	1  u24  QPN
type IfaceAddr struct {
	MTU verbs.MTU
	QPN uint32
}

// IfaceAddrLen is the length of a packed IfaceAddr in bytes.
const IfaceAddrLen = 4

// Append packs a.
func (a IfaceAddr) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(version<<4|a.MTU)<<24|a.QPN)
}

// ParseIfaceAddr checks and unpacks b, which may come from an untrusted peer. Errors
// wrap ErrInvalidAddr.
func ParseIfaceAddr(b []byte) (IfaceAddr, error) {
	if len(b) != IfaceAddrLen {
		return IfaceAddr{}, fmt.Errorf("%w: iface address of %d bytes, want %d", uct.ErrInvalidAddr, len(b), IfaceAddrLen)
	}
	a := IfaceAddr{MTU: verbs.MTU(b[0] & 15), QPN: binary.BigEndian.Uint32(b) & MaxID}
	var err error
	switch {
	case b[0]>>4 != version:
		err = fmt.Errorf("version %d, want %d", b[0]>>4, version)
	case a.MTU.Bytes() == 0:
		err = fmt.Errorf("MTU code %d", a.MTU)
	case a.QPN == 0:
		err = errors.New("QPN 0")
	}
	if err != nil {
		return IfaceAddr{}, fmt.Errorf("%w: iface address: %w", uct.ErrInvalidAddr, err)
	}
	return a, nil
}

// Creq is a connection request. Packed format after the header, big-endian:
//
//	 0  IfaceAddr of the sender
//	 4  device address of the sender (package ib)
//	24  u32  connection id of the sender, 24 bits
//	28  u32  number of the connection between the two ifaces
//
// Both ifaces number their endpoints to the other from 0, so that two simultaneous requests are for
// the same connection.
type Creq struct {
	Iface  IfaceAddr
	Device ibport.DeviceAddr
	ID     uint32
	Number uint32
}

// CreqLen is the length of a packed Creq in bytes.
const CreqLen = IfaceAddrLen + ibport.DeviceAddrLen + 8

// Append packs c.
func (c Creq) Append(b []byte) []byte {
	b = c.Device.Append(c.Iface.Append(b))
	b = binary.BigEndian.AppendUint32(b, c.ID)
	return binary.BigEndian.AppendUint32(b, c.Number)
}

// ParseCreq checks and unpacks b, which may come from an untrusted peer. Errors wrap
// ErrInvalidAddr.
func ParseCreq(b []byte) (c Creq, err error) {
	if len(b) != CreqLen {
		return c, fmt.Errorf("%w: connect request of %d bytes, want %d", uct.ErrInvalidAddr, len(b), CreqLen)
	}
	if c.Iface, err = ParseIfaceAddr(b[:IfaceAddrLen]); err != nil {
		return Creq{}, err
	}
	b = b[IfaceAddrLen:]
	if c.Device, err = ibport.ParseDeviceAddr(b[:ibport.DeviceAddrLen]); err != nil {
		return Creq{}, err
	}
	b = b[ibport.DeviceAddrLen:]
	c.ID = binary.BigEndian.Uint32(b)
	c.Number = binary.BigEndian.Uint32(b[4:])
	if c.ID == 0 || c.ID > MaxID {
		return Creq{}, fmt.Errorf("%w: connection id %#x", uct.ErrInvalidAddr, c.ID)
	}
	return c, nil
}

// CrepLen is the length of a connect reply after the header: u32, the connection id of the sender,
// 24 bits.
const CrepLen = 4

// AppendCrep packs a connect reply.
func AppendCrep(b []byte, id uint32) []byte { return binary.BigEndian.AppendUint32(b, id) }

// ParseCrep checks and unpacks a connect reply.
func ParseCrep(b []byte) (id uint32, ok bool) {
	if len(b) != CrepLen {
		return 0, false
	}
	id = binary.BigEndian.Uint32(b)
	return id, id != 0 && id <= MaxID
}
