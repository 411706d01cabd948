package ucttest

import (
	"bytes"
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// poison overwrites buffers that are the suite's again; data that shows it was
// read too late.
const poison = 0xEE

func scribble(b []byte) { fillWith(b, poison) }

// untouched reports whether b holds only poison.
func untouched(b []byte) bool { return holdsOnly(b, poison) }

// fillWith gives every byte of b one value.
func fillWith(b []byte, x byte) {
	if len(b) == 0 {
		return
	}
	b[0] = x
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// holdsOnly reports whether all bytes of b are among set.
func holdsOnly(b []byte, set ...byte) bool {
	n := 0
	for _, x := range set {
		n += countByte(b, x)
	}
	return n == len(b)
}

func countByte(b []byte, x byte) int { return bytes.Count(b, []byte{x}) }

// pattern is n bytes that tell seed: two patterns of 8 bytes or more differ if
// their seeds do, and no byte of one repeats at a fixed distance.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	var word [8]byte
	for i := 0; i < n; i += len(word) {
		// Steele, Lea, Flood: Fast splittable pseudorandom number generators, mix64.
		z := (uint64(seed)<<24 + uint64(i) + 1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		copy(b[i:], word[:])
	}
	return b
}

// inbox is a handler that copies what arrives.
type inbox struct {
	msgs [][]byte
}

func newInbox(t checkT, s *side, id uint8) *inbox {
	in := &inbox{}
	require.NoError(t, s.Iface.SetAMHandler(id, in))
	return in
}

// HandleAM keeps a copy.
func (in *inbox) HandleAM(data []byte, _ uct.Desc) bool {
	in.msgs = append(in.msgs, append([]byte{}, data...))
	return false
}

// bytesPacker packs a slice and remembers how it was called.
type bytesPacker struct {
	data  []byte
	calls int
	room  int // length of the buffer of the last call
}

// Pack copies data.
func (k *bytesPacker) Pack(dst []byte) int {
	k.calls++
	k.room = len(dst)
	return copy(dst, k.data)
}

// stageLen is the memory in bytes for zcopy buffers of one side.
const stageLen = 1 << 20

// stage lends pieces of registered memory until the operations on them end.
type stage struct {
	mem  uct.Mem // nil if zcopy works without
	buf  []byte
	off  int
	lent int
}

func (g *stage) open(t checkT, p *pair, s *side) {
	if s.MD.Attr().NeedMemH {
		g.mem = p.memory(t, s, stageLen, uct.AccessLocalWrite)
		g.buf = g.mem.Bytes()
		return
	}
	g.buf = make([]byte, stageLen)
}

// take lends n bytes, or nil if they are not free now. n is at most stageLen.
func (g *stage) take(n int) []byte {
	if g.lent == 0 {
		g.off = 0
	}
	if g.off+n > len(g.buf) {
		return nil
	}
	b := g.buf[g.off : g.off+n : g.off+n]
	g.off += (n + 63) &^ 63
	g.lent++
	return b
}

func (g *stage) giveBack(b []byte) {
	scribble(b)
	g.lent--
}

// split is the lengths of n bytes cut into at most pieces pieces: the first of one
// byte, the last the rest, the ones between of equal length.
func split(n, pieces int) []int {
	if pieces <= 1 {
		return []int{n}
	}
	each := n / pieces
	var out []int
	for i := range pieces {
		size := min(each, n)
		switch i {
		case 0:
			size = min(1, n)
		case pieces - 1:
			size = n
		}
		out = append(out, size)
		n -= size
	}
	return out
}

// cut makes an IOV of the given lengths out of a staged buffer.
func (g *stage) cut(buf []byte, lens []int) []uct.IOV {
	iov := make([]uct.IOV, 0, len(lens))
	for _, n := range lens {
		iov = append(iov, uct.IOV{Buf: buf[:n:n], Mem: g.mem})
		buf = buf[n:]
	}
	return iov
}
