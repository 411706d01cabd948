package dv

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Short operations in one basic block: where their bytes begin, and how many fit.
const (
	putData   = mlx5.CtrlLen + mlx5.RaddrLen + mlx5.InlineHdrLen
	maxPutBB  = mlx5.BBLen - putData
	amWordLen = 8 // the header of a short message
	amData    = mlx5.CtrlLen + mlx5.InlineHdrLen + amWordLen
	maxAMBB   = mlx5.BBLen - amData
)

// PutShort implements uct.Putter: an inline RDMA write of one basic block, written
// out; every offset in it is a constant. The rest takes the core's way.
func (e *rcEP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	n := len(buf)
	if uint(n-1) >= it.putMax || used >= e.Room {
		return e.EP.PutShort(buf, raddr, key)
	}
	flags := uint64(0)
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = uint64(mlx5.CtrlCQUpdate) << 32
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	i := q.pi
	b := q.bb(i)
	word := q.word(mlx5.OpRDMAWrite, putSegs(n))
	be.PutUint64(b[0:8], word)
	be.PutUint64(b[8:16], flags)
	be.PutUint64(b[16:24], raddr)
	be.PutUint64(b[24:32], key.Handle<<32)
	be.PutUint32(b[32:36], uint32(n)|inlineBit)
	if n == 8 {
		native.PutUint64(b[putData:putData+8], native.Uint64(buf))
	} else {
		copy(b[putData:], buf)
	}
	q.ringBB(word, b, i, pi)
	return nil
}

var (
	be     = binary.BigEndian
	native = binary.NativeEndian
)

// inlineBit marks the length of an inline segment.
const inlineBit = 1 << 31

// putSegs is the length in units of the WQE of a put of n bytes, 1 to maxPutBB.
func putSegs(n int) uint32 {
	return uint32(putData+n+mlx5.SegLen-1) / mlx5.SegLen
}

// AMShort implements uct.AMSender: an inline send of one basic block. The rest takes
// the core's way.
func (e *rcEP) AMShort(id uint8, hdr uint64, payload []byte) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	n := len(payload)
	if n > it.amMax || used >= e.Room || e.Credits <= 0 || id > uct.MaxAMID {
		return e.EP.AMShort(id, hdr, payload)
	}
	flags := uint64(0)
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = uint64(mlx5.CtrlCQUpdate) << 32
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	i := q.pi
	b := q.bb(i)
	word := q.word(mlx5.OpSendImm, uint32(amData+n+mlx5.SegLen-1)/mlx5.SegLen)
	be.PutUint64(b[0:8], word)
	be.PutUint64(b[8:16], flags|uint64(e.Imm(id)))
	be.PutUint32(b[16:20], uint32(amWordLen+n)|inlineBit)
	binary.LittleEndian.PutUint64(b[20:28], hdr)
	copy(b[amData:], payload)
	q.ringBB(word, b, i, pi)
	return nil
}
