package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
)

// layoutVersion is the version of the layout of all segments; peers with another version reject the connection.
const layoutVersion = 6

// Words that different processes write are never in the same 128 bytes: two cache lines of amd64, which
// prefetches in pairs, one line of some arm64 CPUs.
const linePair = 128

// control is a control block of an iface, to which peers write events. It is in
// the first controlLen bytes of the domain's arena, which every peer maps.
type control struct {
	state atomic.Uint32 // state of the owner, see wake.go
	_     [linePair - 4]byte
	// attention has a word for each inbound link; not 0 means that the ring must be polled.
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
	// Written by the acceptor before the dialer is connected.
	acceptorControl uint32 // number of its control block
	attention       uint32 // index of the attention word
	// Written by the acceptor before it disconnects: 1 for a graceful close.
	closed atomic.Uint32
	_      [linePair - 12]byte

	// Written by the dialer, published by ready.
	ready         atomic.Uint64
	depth         uint32 // slots, a power of two
	segs          uint32
	segLen        uint32 // a multiple of 64
	dialerControl uint32 // number of its control block
	_             [linePair - 24]byte

	// Written by the consumer of the ring.
	head atomic.Uint64 // number of slots returned
	_    [linePair - 8]byte

	// Written by the dialer: the acceptor's region that it accesses.
	guard guard.Word
	_     [linePair - 8]byte

	// Written by the consumer: number of times that it has returned each segment with a reply. A segment with a message
	// is returned with its slot.
	returned [maxSegs]atomic.Uint32
	// Written by the consumer: the reply to the request with a segment.
	answer [maxSegs]answer
}

// answer is the reply to a request. It is valid when the segment was returned.
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

// A slot has data and a word, which publishes and describes it:
//
//	bits  0..31  number of the message: index + 1
//	bits 32..39  id
//	bits 40..47  0
//	bits 48..55  length of the data in the slot
//	bits 56..63  kind
//
// Bits 48..63 are at most inlineLen only for a message in the slot, whose kind is 0, so that one comparison
// distinguishes it from all others.
//
// The sender writes free slots. The receiver stores the same word again before
// it returns the slot: see claim.
type slot struct {
	word atomic.Uint64
	data [inlineLen]byte
}

const (
	slotLen   = 128
	inlineLen = slotLen - 8
	firstLen  = 64 - 8 // bytes of data in the cache line of the word, if lines have 64 bytes

	shiftID   = 32
	shiftLen  = 48
	shiftKind = 56
)

// Types of slots.
const (
	kindInline = 0 // data is the message
	kindSeg    = 1 // data is a segRef
	kindOp     = 2 // data is a request for memory that the sender cannot map
)

// segRef is the location of a message in a segment.
type segRef struct {
	seg uint32
	len uint32
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(slot{})-slotLen]
	_ = [controlBlock]struct{}{}[unsafe.Sizeof(control{})]
	_ = [slotsOff]struct{}{}[unsafe.Sizeof(linkHeader{})]
)

// controlAt returns control block i of an arena, or of its first controlLen bytes; nil if there
// is none.
func controlAt(arena []byte, i uint32) *control {
	if i >= maxControls || len(arena) < controlLen {
		return nil
	}
	return (*control)(unsafe.Pointer(&arena[i*controlBlock]))
}

// attentionAt returns attention word i of a control block; nil if there is none. i is a copy: the peer
// may change the memory from which it was read.
func attentionAt(c *control, i uint32) *atomic.Uint32 {
	if c == nil || i >= maxPeers {
		return nil
	}
	return &c.attention[i]
}

// headerOf returns the header of a link segment of linkLen bytes.
func headerOf(seg []byte) *linkHeader { return (*linkHeader)(unsafe.Pointer(unsafe.SliceData(seg))) }

// bytesOf returns the n bytes at offset off of p.
func bytesOf(p unsafe.Pointer, off uintptr, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(p, off)), n)
}
