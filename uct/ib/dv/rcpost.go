package dv

import (
	"encoding/binary"
	"math/bits"

	"github.com/gucx/gucx/internal/race"
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
	if race.Enabled {
		if err := e.sq.enter(); err != nil {
			return err
		}
		defer e.sq.guard.Leave()
	}
	flags := uint64(0)
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = signaled
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	b := q.bb(q.pi)
	word := q.word(mlx5.OpRDMAWrite, putSegs(n))
	be.PutUint64(b[0:8], word)
	le.PutUint64(b[8:16], flags)
	be.PutUint64(b[16:24], raddr)
	le.PutUint64(b[24:32], uint64(bits.ReverseBytes32(uint32(key.Handle))))
	if n == 8 {
		v := le.Uint64(buf)
		le.PutUint64(b[32:40], v<<32|inline8)
		le.PutUint64(b[40:48], v>>32)
	} else {
		be.PutUint32(b[32:36], uint32(n)|inlineBit)
		copy(b[putData:], buf)
	}
	q.ringBB(word, b, pi)
	return nil
}

// signaled is the second half of a control segment without immediate that asks for
// a completion, as a little-endian number: a store of it needs no swap.
const signaled = uint64(mlx5.CtrlCQUpdate) << 24

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// inlineBit marks the length of an inline segment; inline8 is that of 8 bytes as it
// lies in memory, read as a little-endian number.
const (
	inlineBit = 1 << 31
	inline8   = 8<<24 | inlineBit>>24
)

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
	if race.Enabled {
		if err := e.sq.enter(); err != nil {
			return err
		}
		defer e.sq.guard.Leave()
	}
	flags := uint64(0)
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = signaled
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	b := q.bb(q.pi)
	word := q.word(mlx5.OpSendImm, uint32(amData+n+mlx5.SegLen-1)/mlx5.SegLen)
	be.PutUint64(b[0:8], word)
	le.PutUint64(b[8:16], flags|uint64(bits.ReverseBytes32(e.Imm(id)))<<32)
	be.PutUint32(b[16:20], uint32(amWordLen+n)|inlineBit)
	le.PutUint64(b[20:28], hdr)
	copy(b[amData:], payload)
	q.ringBB(word, b, pi)
	return nil
}
