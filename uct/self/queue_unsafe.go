package self

import (
	"unsafe"

	"github.com/gucx/gucx/uct/base"
)

// slot is a queued message. Its bytes are in data or in a segment. word contains:
//
//	bits  0..7   id
//	bits  8..23  number of the segment
//	bits 32..62  length
//	bit  63      the message is in the segment
//
// Bits 32..63 are at most inlineLen only if the message is in data, so that one comparison
// distinguishes the two cases.
type slot struct {
	word uint64
	data [inlineLen]byte
}

const (
	slotLen   = 128
	inlineLen = slotLen - wordLen
	wordLen   = 8

	shiftSeg  = 8
	shiftLen  = 32
	inSegment = 1 << 31 // above the length
)

var _ = [1]struct{}{}[unsafe.Sizeof(slot{})-slotLen]

// inlineWord returns the word of a message of n bytes in the slot.
func inlineWord(id uint8, n int) uint64 { return uint64(id) | uint64(n)<<shiftLen }

// queue is the queue of messages to an iface, in order. One goroutine posts and handles messages, so
// it needs no synchronization. tail, limit and head are running offsets in bytes.
type queue struct {
	tail  uint64         // offset of the next slot to fill
	limit uint64         // value of tail at which AMShort uses the slow path, because the queue is full or awaited is set
	mask  uint64         // length of the ring in bytes, a power of two, minus 1
	ring  unsafe.Pointer // the slots
	head  uint64         // offset of the next slot to handle; the slot of a running handler is still in use

	awaited bool // the next message must wake the owner; the queue is empty
	segs    []segment
	free    []uint16 // free segments; the one that was released last is used first, because it is in the cache
	segLen  int
}

// noQueue accepts no messages.
var noQueue queue

// segment is the buffer of a longer message; it implements uct.Desc.
type segment struct {
	q     *queue
	buf   []byte // nil until the first use
	index uint16
}

// segmentChunk is the number of segments whose buffers are allocated at once.
const segmentChunk = 8

// Release implements uct.Desc.
func (s *segment) Release() { s.q.free = append(s.q.free, s.index) }

// init initializes a queue of depth messages, a power of two.
func (q *queue) init(depth, segLen int) {
	slots := make([]slot, depth)
	*q = queue{ring: unsafe.Pointer(unsafe.SliceData(slots)), limit: uint64(depth) * slotLen, mask: uint64(depth)*slotLen - 1,
		segLen: segLen, segs: make([]segment, depth), free: make([]uint16, 0, depth)}
	for i := range q.segs {
		q.segs[i] = segment{q: q, index: uint16(i)}
		q.free = append(q.free, uint16(depth-1-i))
	}
}

// slotAt returns the slot of a running offset. The access is in the ring, because off is a multiple of slotLen and masked.
func (q *queue) slotAt(off uint64) *slot { return (*slot)(unsafe.Add(q.ring, off&q.mask)) }

// grow allocates buffers for the chunk of segments that contains index.
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

// full reports whether no slot is free.
func (q *queue) full() bool { return q.tail == q.limit && !q.awaited }

// room reports whether a message of any length fits.
func (q *queue) room() bool { return !q.full() && len(q.free) > 0 }

// take removes a segment from the free ones for the next message, and returns its payload area; nil if there is none.
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

// put writes the next slot for a message of n bytes in the segment that take returned.
func (q *queue) put(id uint8, n int) {
	last := len(q.free) - 1
	q.slotAt(q.tail).word = uint64(id) | uint64(q.free[last])<<shiftSeg | uint64(n|inSegment)<<shiftLen
	q.free = q.free[:last]
}

// deliver passes a message in a segment to its handler.
//
//go:noinline
func (q *queue) deliver(word uint64, table *base.AMTable) {
	g, n := &q.segs[uint16(word>>shiftSeg)], word>>shiftLen&^inSegment
	if !table.At(uint8(word)).HandleAM(g.buf[:n:n], g) {
		g.Release()
	}
}
