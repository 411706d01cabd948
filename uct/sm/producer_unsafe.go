package sm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/race"
)

// order stands for all rings when the race detector is told of the order that a
// ring makes: two ifaces of one process have different mappings of it.
var order byte

// producer is the sending end of a ring. It belongs to the owner of the EP.
type producer struct {
	slots  unsafe.Pointer // nil: not connected
	tail   uint64         // messages published
	limit  uint64         // tail at which the ring is full, by a stale copy of the consumer's word
	mask   uint64         // the number of slots, a power of two, less 1
	fenced bool           // publish with a full barrier
	broken bool           // the consumer wrote nonsense

	hdr    *linkHeader
	segs   unsafe.Pointer
	segLen int
	top    uint8 // segment that seg returned
	pool   *segments
}

func newProducer(seg []byte, depth, segs, segLen int, fenced bool) producer {
	base, hdr := unsafe.Pointer(unsafe.SliceData(seg)), headerOf(seg)
	return producer{
		slots: unsafe.Add(base, slotsOff), segs: unsafe.Add(base, segsOff), hdr: hdr,
		mask: uint64(depth) - 1, limit: uint64(depth), segLen: segLen, pool: newSegments(&hdr.returned, segs), fenced: fenced,
	}
}

// next is the slot to fill, or nil when the ring is full.
func (p *producer) next() *slot {
	if p.isFull() {
		return nil
	}
	return p.slotAt(p.tail)
}

// isFull reports that there is no slot to fill.
func (p *producer) isFull() bool { return p.tail == p.limit && !p.reload() }

// slotAt is where message i goes.
func (p *producer) slotAt(i uint64) *slot {
	return (*slot)(unsafe.Add(p.slots, uintptr(i&p.mask)*slotLen))
}

// reload looks at the consumer's word, and reports whether there is room.
//
//go:noinline
func (p *producer) reload() bool {
	head := p.hdr.head.Load()
	if p.tail-head > p.mask+1 { // it cannot take what was not sent, nor give back
		p.broken = true
		return false
	}
	p.limit = head + p.mask + 1
	return p.tail != p.limit
}

// publish makes slot s, which next returned, a message.
func (p *producer) publish(s *slot, id uint8, kind, n uint64) {
	p.tail++
	word := uint64(uint32(p.tail)) | uint64(id)<<shiftID | kind<<shiftKind | n<<shiftLen
	race.Release(unsafe.Pointer(&order))
	if p.fenced {
		s.word.Store(word)
		return
	}
	mmio.StoreRelease64(unsafe.Pointer(&s.word), word)
}

// fetch has this core get the line soon that the receiver had last.
func (p *producer) fetch() { mmio.PrefetchW(unsafe.Pointer(p.slotAt(p.tail + prefetch))) }

// prefetch is how many slots ahead the line is fetched that the receiver had last.
const prefetch = 12

// seg returns a segment that is free, or nil. It stays free until it is taken.
func (p *producer) seg() []byte {
	i, ok := p.pool.next()
	if !ok {
		return nil
	}
	p.top = i
	return p.segAt(i, p.segLen)
}

// segAt is the first n bytes of segment i.
func (p *producer) segAt(i uint8, n int) []byte {
	return bytesOf(p.segs, uintptr(i)*uintptr(p.segLen), n)
}

// room reports whether any message can go out now.
func (p *producer) room() bool { return p.next() != nil && p.seg() != nil }

// long publishes the first n bytes of the segment that seg returned. Few bytes go
// into the slot, and the segment stays here, in this core's cache.
func (p *producer) long(s *slot, id uint8, buf []byte, n int) {
	if n <= inlineLen {
		copy(s.data[:], buf[:n])
		p.publish(s, id, kindInline, uint64(n))
		return
	}
	ref := (*segRef)(unsafe.Pointer(&s.data))
	*ref = segRef{seg: uint32(p.top), len: uint32(n)}
	p.pool.send(p.top)
	p.publish(s, id, kindSeg, uint64(unsafe.Sizeof(segRef{})))
}
