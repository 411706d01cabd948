package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
)

// layoutVersion is of everything in the segments; peers with another one refuse.
const layoutVersion = 6

// Words of several processes never share 128 bytes: two lines of amd64, which
// prefetches in pairs, one line of some arm64.
const linePair = 128

// A control block is what peers write to without being asked: an iface has one, in
// the first controlLen bytes of its domain's arena, which every peer maps.
type control struct {
	state atomic.Uint32 // of the owner, see wake.go
	_     [linePair - 4]byte
	// attention has a word for each inbound link; nonzero: look at its ring.
	attention [maxPeers]atomic.Uint32
}

const (
	controlLen   = 2 << 20
	controlBlock = 8 << 10
	maxControls  = controlLen / controlBlock
	maxPeers     = 1024
)

// A link segment has a header, the slots and the segments for long messages.
// It is sparse, so that its length does not depend on the configuration.
//
//	0          header
//	8192       maxSlots slots of 128 bytes
//	segsOff    maxSegsLen bytes: segs of segLen each
type linkHeader struct {
	// By the acceptor, before the dialer is welcome.
	acceptorControl uint32 // number of its control block
	attention       uint32 // index in it
	// By the acceptor before it hangs up: 1 if it leaves in order.
	left atomic.Uint32
	_    [linePair - 12]byte

	// By the dialer, published by ready.
	ready         atomic.Uint64
	depth         uint32 // slots, a power of two
	segs          uint32
	segLen        uint32 // a multiple of 64
	dialerControl uint32 // number of its control block
	_             [linePair - 24]byte

	// By the consumer of the ring.
	head atomic.Uint64 // slots taken
	_    [linePair - 8]byte

	// By the dialer: which of the acceptor's regions it is inside.
	guard guard.Word
	_     [linePair - 8]byte

	// By the consumer: how often each segment came back with an answer. One with a message is back
	// when its slot is taken.
	returned [maxSegs]atomic.Uint32
	// By the consumer: how the request with a segment ended.
	answer [maxSegs]answer
}

// answer is valid when the segment has come back.
type answer struct {
	status uint64
	old    uint64 // the word before an atomic
}

const (
	maxSlots   = 4096
	maxSegs    = 256
	maxSegLen  = 64 << 10
	slotsOff   = 8192
	segsOff    = slotsOff + maxSlots*slotLen
	maxSegsLen = maxSegs * maxSegLen
	linkLen    = segsOff + maxSegsLen
)

// A slot is a word, which says that the rest is there and what it is, and data.
//
//	bits  0..31  number of the message: index + 1
//	bits 32..39  id
//	bits 40..47  0
//	bits 48..55  length of what is in the slot
//	bits 56..63  kind
//
// The last two together are the length of a message that is in the slot, as the kind of
// those is 0: one comparison tells them from all others.
//
// The sender writes a slot that is free. The receiver stores the word again that it has seen, until
// it gives the slot back: see claim.
type slot struct {
	word atomic.Uint64
	data [inlineLen]byte
}

const (
	slotLen   = 128
	inlineLen = slotLen - 8
	firstLen  = 64 - 8 // of what is in the line of the word, where lines have 64 bytes

	shiftID   = 32
	shiftLen  = 48
	shiftKind = 56
)

// Kinds of slots.
const (
	kindInline = 0 // the message is in the slot
	kindSeg    = 1 // data is a segRef
	kindOp     = 2 // data is a request: help with memory that cannot be mapped
)

// segRef says where a long message is.
type segRef struct {
	seg uint32
	len uint32
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(slot{})-slotLen]
	_ = [controlBlock]struct{}{}[unsafe.Sizeof(control{})]
	_ = [slotsOff]struct{}{}[unsafe.Sizeof(linkHeader{})]
)

// controlAt is block i of an arena, or of its first controlLen bytes; nil if there
// is none.
func controlAt(arena []byte, i uint32) *control {
	if i >= maxControls || len(arena) < controlLen {
		return nil
	}
	return (*control)(unsafe.Pointer(&arena[i*controlBlock]))
}

// attentionAt is attention word i of a control block; nil if there is none. The
// peer may change what i was read from: nobody reads it again.
func attentionAt(c *control, i uint32) *atomic.Uint32 {
	if c == nil || i >= maxPeers {
		return nil
	}
	return &c.attention[i]
}

// headerOf is the header of a link segment of linkLen bytes.
func headerOf(seg []byte) *linkHeader { return (*linkHeader)(unsafe.Pointer(unsafe.SliceData(seg))) }

// bytesOf is n bytes at offset off of p.
func bytesOf(p unsafe.Pointer, off uintptr, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(p, off)), n)
}
