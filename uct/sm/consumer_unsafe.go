package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/uct/base"
)

// consumer is the receiving end of a ring. It belongs to the owner of the iface.
// The peer may write anything at any time: every length and index is checked, and
// message bytes may change while a handler reads them.
type consumer struct {
	// The next message shows in the word off bytes behind base: base are the slots; the
	// word by which the dialer has said what it sends, before that; one that never
	// changes, after the end. It does when the low half of the word is want. (One pointer
	// to that word would need a write barrier for each message.)
	base unsafe.Pointer
	off  uintptr
	want uint32

	head   uint64  // messages taken
	mask   uintptr // of off: the length of the ring in bytes, a power of two, less 1
	slots  unsafe.Pointer
	hdr    *linkHeader
	segs   unsafe.Pointer
	count  uint32 // segments
	segLen int
	begun  bool
}

// pollBatch is how many messages of one peer one Progress takes.
const pollBatch = 16

// never is a word that shows no message.
var never atomic.Uint64

func newConsumer(seg []byte) consumer {
	hdr := headerOf(seg)
	return consumer{hdr: hdr, base: unsafe.Pointer(&hdr.ready), want: 1, slots: unsafe.Pointer(&seg[slotsOff]), segs: unsafe.Pointer(&seg[segsOff])}
}

// waiting reports whether there is something to look at.
func (c *consumer) waiting() bool { return uint32(c.slot().word.Load()) == c.want }

// begin reads what the dialer says about the ring; false if that cannot be.
func (c *consumer) begin() (dialerControl uint32, valid bool) {
	depth, segs, segLen := c.hdr.depth, c.hdr.segs, c.hdr.segLen
	if depth == 0 || depth > maxSlots || depth&(depth-1) != 0 || segs > maxSegs || segLen > maxSegLen {
		return 0, false
	}
	c.mask, c.count, c.segLen, c.begun = uintptr(depth)*slotLen-1, segs, int(segLen), true
	c.base = c.slots
	return c.hdr.dialerControl, true
}

// depth is the number of slots.
func (c *consumer) depth() int { return int((c.mask + 1) / slotLen) }

// stop makes it never see a message again.
func (c *consumer) stop() { c.base, c.off, c.want = unsafe.Pointer(&never), 0, 1 }

// slot is where the next message shows: nothing but the word of it, unless base are the slots.
func (c *consumer) slot() *slot { return (*slot)(unsafe.Add(c.base, c.off)) }

// seen is called when a message shows, whose word is in slot s.
func (c *consumer) seen(s *slot, word uint64) {
	race.Acquire(unsafe.Pointer(&order))
	s.claim(word)
}

// claim stores the word that is there again, which takes the line away from the sender's cache.
// Without it the sender keeps a copy that it shares with this side. Its store to such a line, one
// round later, waits until this side has given its copy up, and so do all stores behind it. A line
// that the sender does not have is fetched ahead of the store (experiment 0073 in docs/perf).
func (s *slot) claim(word uint64) { mmio.StoreRelease64(unsafe.Pointer(&s.word), word) }

// claimRest is claim for what is longer than firstLen.
func (s *slot) claimRest() {
	p := unsafe.Pointer(&s.data[firstLen])
	mmio.StoreRelease64(p, *(*uint64)(p))
}

// next goes on to the next slot.
func (c *consumer) next() {
	c.head++
	c.want++
	c.off = (c.off + slotLen) & c.mask
}

// taken gives the slots up to here back.
func (c *consumer) taken() {
	mmio.StoreRelease64(unsafe.Pointer(&c.hdr.head), c.head)
}

// deliver gives a message that is in a segment to its handler; false if the slot is not one.
func (c *consumer) deliver(s *slot, word uint64, table *base.AMTable) bool {
	ref := *(*segRef)(unsafe.Pointer(&s.data)) // a copy: the peer may change it
	if word>>shiftKind != kindSeg || ref.seg >= c.count || int64(ref.len) > int64(c.segLen) {
		return false
	}
	data := c.seg(ref.seg)[:ref.len:ref.len]
	takeAway(data)
	table.Handle(uint8(word>>shiftID), data, nil)
	return true
}

// takeAway gets lines of a message for this core alone, as claim does, before they are read: one trip
// for each, and the sender can fetch them again.
func takeAway(data []byte) {
	mmio.PrefetchWLines(unsafe.Pointer(unsafe.SliceData(data)), min(linesOf(len(data)), takeLines))
}

func (c *consumer) seg(i uint32) []byte {
	return bytesOf(c.segs, uintptr(i)*uintptr(c.segLen), c.segLen)
}

// giveBack tells the sender that the answer is in a segment.
func (c *consumer) giveBack(i uint32) {
	word := &c.hdr.returned[i]
	mmio.StoreRelease32(unsafe.Pointer(word), word.Load()+1)
}
