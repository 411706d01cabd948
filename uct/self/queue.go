package self

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/shortcopy"
	"github.com/gucx/gucx/uct/base"
)

// inlineLen is what a slot holds besides its header, which makes 128 bytes.
const inlineLen = 120

// slot is a message that waits: in data, or in segment seg.
type slot struct {
	len  uint32
	seg  uint16 // noSeg: in data
	id   uint8
	data [inlineLen]byte
}

const noSeg = 1<<16 - 1

// queue is the messages of an iface, in order of arrival. One goroutine posts and
// takes, so there is nothing to synchronise.
type queue struct {
	slots  []slot
	tail   uint // next to fill
	head   uint // next to handle; the slot of a running handler is still in use
	segs   []segment
	free   []uint16 // segments, last used first: its lines are still in the cache
	segLen int
}

// segment is the buffer of a longer message; it implements uct.Desc.
type segment struct {
	q     *queue
	buf   []byte // nil until so many are in use
	index uint16
}

// segmentChunk is how many segments get their buffers at once.
const segmentChunk = 8

// Release implements uct.Desc.
func (s *segment) Release() { s.q.free = append(s.q.free, s.index) }

func newQueue(depth, segLen int) *queue {
	q := &queue{slots: make([]slot, depth), segLen: segLen,
		segs: make([]segment, depth), free: make([]uint16, 0, depth)}
	for i := range q.segs {
		q.segs[i] = segment{q: q, index: uint16(i)}
		q.free = append(q.free, uint16(depth-1-i))
	}
	return q
}

// grow gives the segments beside that of a number, and itself, buffers.
//
//go:noinline
func (q *queue) grow(index uint16) {
	first := int(index) &^ (segmentChunk - 1)
	chunk := q.segs[first:min(first+segmentChunk, len(q.segs))]
	stride := (q.segLen + 63) &^ 63
	mem := make([]byte, len(chunk)*stride)
	for i := range chunk {
		chunk[i].buf = mem[i*stride : i*stride+q.segLen : i*stride+q.segLen]
	}
}

// room reports whether a message of any kind fits.
func (q *queue) room() bool { return q.tail-q.head < uint(len(q.slots)) && len(q.free) > 0 }

// next is the slot to fill, or nil.
func (q *queue) next() *slot {
	if q.tail-q.head >= uint(len(q.slots)) {
		return nil
	}
	return &q.slots[q.tail&uint(len(q.slots)-1)]
}

// pushShort stores a message of 8 + len(payload) bytes, at most inlineLen.
func (q *queue) pushShort(id uint8, hdr uint64, payload []byte) bool {
	s := q.next()
	if s == nil {
		return false
	}
	s.len, s.seg, s.id = uint32(8+len(payload)), noSeg, id
	binary.LittleEndian.PutUint64(s.data[:], hdr)
	if len(payload) > 0 {
		shortcopy.Copy(s.data[8:], payload)
	}
	q.tail++
	return true
}

// take returns the payload area of a segment for the next message, or nil.
func (q *queue) take() []byte {
	if !q.room() {
		return nil
	}
	i := q.free[len(q.free)-1]
	if q.segs[i].buf == nil {
		q.grow(i)
	}
	return q.segs[i].buf
}

// push makes a message of the n bytes in what take returned.
func (q *queue) push(id uint8, n int) {
	s := q.next()
	last := len(q.free) - 1
	s.len, s.seg, s.id = uint32(n), q.free[last], id
	q.free = q.free[:last]
	q.tail++
}

// handle gives all messages that are there now to their handlers.
func (q *queue) handle(table *base.AMTable) int {
	start := q.head
	for end := q.tail; q.head != end; q.head++ {
		s := &q.slots[q.head&uint(len(q.slots)-1)]
		if s.seg == noSeg {
			table.At(s.id).HandleAM(s.data[:s.len:s.len], nil)
			continue
		}
		g := &q.segs[s.seg]
		if !table.At(s.id).HandleAM(g.buf[:s.len:s.len], g) {
			g.Release()
		}
	}
	return int(q.head - start)
}
