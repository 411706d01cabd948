package sm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/race"
)

// producer is the sending end of a ring. Only the owner of the EP uses it.
type producer struct {
	slots  unsafe.Pointer // nil if not connected
	tail   uint64         // number of messages published
	limit  uint64         // value of tail at which the ring is full, from a stale copy of the consumer's head
	mask   uint64         // number of slots, a power of two, minus 1
	fenced bool           // publish with a full barrier
	broken bool           // the consumer wrote an invalid head

	hdr    *linkHeader
	segs   unsafe.Pointer
	segLen int
	pool   *segments
}

func newProducer(seg []byte, depth, segs, segLen int, fenced bool) producer {
	base, hdr := unsafe.Pointer(unsafe.SliceData(seg)), headerOf(seg)
	return producer{
		slots: unsafe.Add(base, slotsOff), segs: unsafe.Add(base, segsOff), hdr: hdr,
		mask: uint64(depth) - 1, limit: uint64(depth), segLen: segLen, pool: newSegments(&hdr.returned, segs), fenced: fenced,
	}
}

// next returns the slot to fill; nil if the ring is full.
func (p *producer) next() *slot {
	if p.isFull() {
		return nil
	}
	return p.slotAt(p.tail)
}

// isFull reports whether no slot is free.
func (p *producer) isFull() bool { return p.tail == p.limit && !p.reload() }

// slotAt returns the slot of message i.
func (p *producer) slotAt(i uint64) *slot {
	return (*slot)(unsafe.Add(p.slots, uintptr(i&p.mask)*slotLen))
}

// reload loads the consumer's head, and reports whether a slot is free.
//
//go:noinline
func (p *producer) reload() bool {
	head := p.hdr.head.Load()
	if p.tail-head > p.mask+1 { // more messages than were sent, or a decreasing head
		p.broken = true
		return false
	}
	p.limit = head + p.mask + 1
	return p.tail != p.limit
}

// publish publishes the message in slot s, which next returned.
func (p *producer) publish(s *slot, id uint8, kind, n uint64) {
	p.tail++
	word := uint64(uint32(p.tail)) | uint64(id)<<shiftID | kind<<shiftKind | n<<shiftLen
	race.ReleaseToPeers()
	if p.fenced {
		s.word.Store(word)
		return
	}
	mmio.StoreRelease64(unsafe.Pointer(&s.word), word)
}

// fetch prefetches the cache line of a later slot, which the receiver's cache has.
func (p *producer) fetch() { mmio.PrefetchW(unsafe.Pointer(p.slotAt(p.tail + prefetch))) }

// prefetch is the distance of the slot whose line is prefetched.
const prefetch = 12

// seg returns the next free segment; nil if there is none. The segment is still free until it is sent.
func (p *producer) seg() []byte {
	if p.pool.count == 0 && !p.refill() {
		return nil
	}
	return p.segAt(p.pool.next(), p.segLen)
}

// refill collects segments that the consumer has returned, and reports whether one is free.
//
//go:noinline
func (p *producer) refill() bool {
	p.reload()
	if p.broken {
		return false
	}
	p.pool.collect(p.limit - (p.mask + 1))
	return p.pool.count != 0
}

// segAt returns the first n bytes of segment i.
func (p *producer) segAt(i uint8, n int) []byte {
	return bytesOf(p.segs, uintptr(i)*uintptr(p.segLen), n)
}

// room reports whether a message of any length can be sent now.
func (p *producer) room() bool { return p.next() != nil && p.seg() != nil }

// long publishes a message of the first n bytes of the segment that seg returned. If they fit, it copies them
// to the slot; then the segment is still free, and in this core's cache.
func (p *producer) long(s *slot, id uint8, buf []byte, n int) {
	if n <= inlineLen {
		copy(s.data[:], buf[:n])
		p.publish(s, id, kindInline, uint64(n))
		return
	}
	p.inSegment(s, id, n)
}

// inSegment publishes a message in the first n bytes of the segment that seg returned.
func (p *producer) inSegment(s *slot, id uint8, n int) {
	ref := (*segRef)(unsafe.Pointer(&s.data))
	*ref = segRef{seg: uint32(p.pool.next()), len: uint32(n)}
	p.pool.send(p.tail)
	p.publish(s, id, kindSeg, uint64(unsafe.Sizeof(segRef{})))
}

// fetchNext prefetches the cache lines for the next message, assuming that it has n bytes as the previous one.
func (p *producer) fetchNext(n int) {
	p.fetch()
	if p.pool.count != 0 {
		mmio.PrefetchWLines(unsafe.Add(p.segs, uintptr(p.pool.next())*uintptr(p.segLen)), min(linesOf(n), aheadLines))
	}
}

// Maximum number of lines of a segment that the sender (aheadLines) and the receiver (takeLines) prefetch at once. The sender
// has the time until its next message, and rewrites all lines; the receiver needs fewer, because it already reads the first
// lines (experiments 0130 and 0140 in docs/perf).
const (
	aheadLines = 64
	takeLines  = 8
)

// claimedLen is the length in bytes of the longest message of which the receiver prefetches takeLines lines.
const claimedLen = 2 << 10

// linesOf returns the number of lines of 64 bytes for n bytes.
func linesOf(n int) int { return (n + 63) / 64 }
