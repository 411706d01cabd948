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

// seg returns the next segment, or nil if none is here. It stays here until it is taken.
func (p *producer) seg() []byte {
	if p.pool.count == 0 && !p.refill() {
		return nil
	}
	return p.segAt(p.pool.next(), p.segLen)
}

// refill looks for segments that are back, and reports whether one is here.
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
	p.inSegment(s, id, n)
}

// inSegment publishes the first n bytes of the segment that seg returned.
func (p *producer) inSegment(s *slot, id uint8, n int) {
	ref := (*segRef)(unsafe.Pointer(&s.data))
	*ref = segRef{seg: uint32(p.pool.next()), len: uint32(n)}
	p.pool.send(p.tail)
	p.publish(s, id, kindSeg, uint64(unsafe.Sizeof(segRef{})))
}

// fetchNext has this core get the lines soon that the next message will be written to if it is as
// long as the one before, which had n bytes.
func (p *producer) fetchNext(n int) {
	p.fetch()
	if p.pool.count != 0 {
		mmio.PrefetchWLines(unsafe.Add(p.segs, uintptr(p.pool.next())*uintptr(p.segLen)), min(linesOf(n), aheadLines))
	}
}

// Of a segment that many lines at most are asked for at once: as many as a core waits for anyway, and
// by the receiver fewer, as it reads on while they come (experiment 0130 in docs/perf).
const (
	aheadLines = 24
	takeLines  = 8
)

// linesOf is how many lines of 64 bytes n bytes take.
func linesOf(n int) int { return (n + 63) / 64 }
