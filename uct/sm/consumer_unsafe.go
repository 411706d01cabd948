package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/uct/base"
)

// consumer is the receiving end of a ring. Only the owner of the iface uses it.
// The peer may write anything at any time: every length and index is checked, and
// message bytes may change while a handler reads them.
type consumer struct {
	// The word at base+off announces the next message when its lower half equals want. base points to the slots. Before
	// begin it points to linkHeader.ready, after stop to a word that never changes.
	// (A pointer to the word itself would need a GC write barrier for each message.)
	base unsafe.Pointer
	off  uintptr
	want uint32

	head   uint64  // number of messages handled
	mask   uintptr // mask of off: length of the ring in bytes, a power of two, minus 1
	slots  unsafe.Pointer
	hdr    *linkHeader
	segs   unsafe.Pointer
	count  uint32 // segments
	segLen int
	begun  bool
}

// pollBatch limits the messages of one peer that one Progress handles.
const pollBatch = 16

// never is a word that announces no message.
var never atomic.Uint64

func newConsumer(seg []byte) consumer {
	hdr := headerOf(seg)
	return consumer{hdr: hdr, base: unsafe.Pointer(&hdr.ready), want: 1, slots: unsafe.Pointer(&seg[slotsOff]), segs: unsafe.Pointer(&seg[segsOff])}
}

// waiting reports whether a message has arrived, or the dialer has set ready.
func (c *consumer) waiting() bool { return uint32(c.slot().word.Load()) == c.want }

// begin reads the dimensions of the ring that the dialer has written; valid is false if they are not possible.
func (c *consumer) begin() (dialerControl uint32, valid bool) {
	depth, segs, segLen := c.hdr.depth, c.hdr.segs, c.hdr.segLen
	if depth == 0 || depth > maxSlots || depth&(depth-1) != 0 || segs > maxSegs || segLen > maxSegLen {
		return 0, false
	}
	c.mask, c.count, c.segLen, c.begun = uintptr(depth)*slotLen-1, segs, int(segLen), true
	c.base = c.slots
	return c.hdr.dialerControl, true
}

// depth returns the number of slots.
func (c *consumer) depth() int { return int((c.mask + 1) / slotLen) }

// stop makes all later calls of waiting return false.
func (c *consumer) stop() { c.base, c.off, c.want = unsafe.Pointer(&never), 0, 1 }

// slot returns the slot of the next message. Before begin and after stop only its word is valid.
func (c *consumer) slot() *slot { return (*slot)(unsafe.Add(c.base, c.off)) }

// seen is called when a message has arrived. word is the word of slot s.
func (c *consumer) seen(s *slot, word uint64) {
	race.AcquireFromPeers()
	s.claim(word)
}

// claim stores the word again, which makes the cache line exclusive to this core.
// Otherwise both caches share the line, and the sender's next store to it, one round later, waits until this
// core has invalidated its copy, and later stores wait too. A line
// that the sender does not have is prefetched before the store (experiment 0073 in docs/perf).
func (s *slot) claim(word uint64) { mmio.StoreRelease64(unsafe.Pointer(&s.word), word) }

// claimRest is claim for the second line of a message of more than firstLen bytes.
func (s *slot) claimRest() {
	p := unsafe.Pointer(&s.data[firstLen])
	mmio.StoreRelease64(p, *(*uint64)(p))
}

// next advances to the next slot.
func (c *consumer) next() {
	c.head++
	c.want++
	c.off = (c.off + slotLen) & c.mask
}

// returnSlots returns the slots of all handled messages to the sender.
func (c *consumer) returnSlots() {
	mmio.StoreRelease64(unsafe.Pointer(&c.hdr.head), c.head)
}

// deliver passes a message in a segment to its handler; false if the slot is malformed.
func (c *consumer) deliver(s *slot, word uint64, table *base.AMTable) bool {
	ref := *(*segRef)(unsafe.Pointer(&s.data)) // a copy: the peer may change it
	if word>>shiftKind != kindSeg || ref.seg >= c.count || int64(ref.len) > int64(c.segLen) {
		return false
	}
	data := c.seg(ref.seg)[:ref.len:ref.len]
	claimLines(data)
	table.At(uint8(word>>shiftID)).HandleAM(data, nil)
	return true
}

// claimLines makes cache lines of a message exclusive to this core, as claim does, before they are read: that needs one
// transfer for each line, and the sender can prefetch them later.
func claimLines(data []byte) {
	mmio.PrefetchWLines(unsafe.Pointer(unsafe.SliceData(data)), linesToClaim(len(data)))
}

// linesToClaim returns the number of lines that the receiver prefetches of a message of n bytes: of a long message only the first,
// which has UCP's header. A handler that reads the others does so in order, and the CPU prefetches them by itself
// (experiment 0140 in docs/perf).
func linesToClaim(n int) int {
	if n > claimedLen {
		return 1
	}
	return min(linesOf(n), takeLines)
}

func (c *consumer) seg(i uint32) []byte {
	return bytesOf(c.segs, uintptr(i)*uintptr(c.segLen), c.segLen)
}

// returnSegment returns a segment with a reply to the sender.
func (c *consumer) returnSegment(i uint32) {
	word := &c.hdr.returned[i]
	mmio.StoreRelease32(unsafe.Pointer(word), word.Load()+1)
}
