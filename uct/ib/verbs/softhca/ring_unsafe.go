package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/race"
)

// A ring carries packets one way between two processes: one producer at a time,
// one consumer at a time. Records are contiguous: a 64-byte header and the payload,
// rounded up to 64 bytes; a record that does not fit before the end of the ring
// starts again at the beginning, after a filler.
//
//	ringCtl   head (consumer)   tail (producer)   waiting (producer is blocked)
//	data      ringLen bytes
const (
	ringLen     = 1 << 20
	recordAlign = 64
	maxPayload  = 4096 // the largest path MTU
	maxRecord   = packetLen + maxPayload
)

// ringCtl is in the link segment; each word on lines of its own. head and tail
// count bytes and never wrap.
type ringCtl struct {
	head    atomic.Uint64
	_       [120]byte
	tail    atomic.Uint64
	_       [120]byte
	waiting atomic.Uint32
	_       [124]byte
}

const (
	ringCtlLen = 384
	packetLen  = 64
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(ringCtl{})-ringCtlLen]
	_ = [1]struct{}{}[unsafe.Sizeof(packet{})-packetLen]
)

// packet is the header of a record: the fields of BTH and its extension headers
// that the operation needs.
type packet struct {
	length  uint32 // of the record, a multiple of recordAlign
	op      uint8  // pkt*
	flags   uint8  // flag*
	status  uint8  // syndrome of a refusal, RNR timer code
	_       uint8
	srcQPN  uint32
	dstQPN  uint32
	msn     uint32 // message number of the requester's QP
	payload uint32 // bytes that follow the header
	raddr   uint64 // read, write, atomic; responses: offset in the message
	rkey    uint32
	imm     uint32
	swapAdd uint64
	compare uint64
	dmaLen  uint32 // whole message
	ext     uint32 // Q_Key of a datagram (DETH); with flagXRC the SRQ's number (XRCETH)
}

// order stands for all rings when the race detector is told of the order that a
// ring makes: two devices of one process have different mappings of it.
var order byte

// producer is the sending end. Its owner serialises calls.
type producer struct {
	ctl  *ringCtl
	data unsafe.Pointer
	tail uint64
	head uint64 // last seen
	size uint64 // of the last reserved record: the peer may write to its header
}

// reserve returns room for a record with n payload bytes, or nil when the ring is
// full. The record is not visible before publish.
func (p *producer) reserve(n int) *packet {
	need := uint64(packetLen+n+recordAlign-1) &^ (recordAlign - 1)
	skip := uint64(0)
	if left := ringLen - p.tail%ringLen; left < need {
		skip = left
	}
	if p.tail+skip+need-p.head > ringLen {
		p.head = p.ctl.head.Load()
		if h := p.tail - p.head; h > ringLen || h+skip+need > ringLen {
			return nil
		}
	}
	if skip > 0 {
		f := (*packet)(unsafe.Add(p.data, p.tail%ringLen))
		f.length, f.op = uint32(skip), pktFiller
		p.tail += skip
	}
	pkt := (*packet)(unsafe.Add(p.data, p.tail%ringLen))
	*pkt = packet{length: uint32(need), payload: uint32(n)}
	p.size = need
	return pkt
}

// room reports whether n bytes of records fit, whatever their lengths.
func (p *producer) room(n int) bool {
	if p.tail-p.head+uint64(n)+maxRecord <= ringLen {
		return true
	}
	p.head = p.ctl.head.Load()
	used := p.tail - p.head
	return used <= ringLen && used+uint64(n)+maxRecord <= ringLen
}

// body is the payload of a reserved or received record.
func (pkt *packet) body() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(pkt), packetLen) }

// publish makes visible the record that reserve returned last. The store releases what
// was written to it, for the load in next; and it comes before the caller's look at the
// peer's attention and sleeping words: see call, and "A store, then a load" in mmio.
func (p *producer) publish(*packet) {
	p.tail += p.size
	race.Release(unsafe.Pointer(&order))
	p.ctl.tail.Store(p.tail)
}

// awaitRoom says that the producer waits, and reports whether there is room after
// all, in which case it need not. The consumer stores head and then looks at waiting, in
// release and roomMade: one sees the other.
func (p *producer) awaitRoom() bool {
	p.ctl.waiting.Store(1)
	return p.tail-p.ctl.head.Load() <= ringLen/2
}

// consumer is the receiving end. Its owner serialises calls. The peer may write
// anything to the ring at any time: what next returns is a checked copy of the
// header, and body bytes may change while they are read.
type consumer struct {
	ctl  *ringCtl
	data unsafe.Pointer
	head uint64
	size uint64 // length of the current record
}

// next copies the next header to pkt and returns its payload; false when there is
// none. A malformed record breaks the ring: broken is set and nothing more comes. So
// does more filler than the ring can hold: a peer that writes it all the time would
// never let go.
func (c *consumer) next(pkt *packet) (body unsafe.Pointer, ok, broken bool) {
	for start := c.head; c.head-start <= ringLen; {
		avail := c.ctl.tail.Load() - c.head
		if avail == 0 {
			return nil, false, false
		}
		race.Acquire(unsafe.Pointer(&order))
		at := c.head % ringLen
		rec := (*packet)(unsafe.Add(c.data, at))
		*pkt = *rec
		n := uint64(pkt.length)
		if avail > ringLen || n < packetLen || n%recordAlign != 0 || n > avail || at+n > ringLen {
			return nil, false, true
		}
		c.size = n
		if pkt.op != pktFiller {
			if uint64(pkt.payload) > n-packetLen || pkt.payload > maxPayload {
				return nil, false, true
			}
			return rec.body(), true, false
		}
		c.release()
	}
	return nil, false, true
}

// each calls f with the headers of the records that wait, and leaves them there; up to one
// that is malformed.
func (c *consumer) each(f func(*packet)) {
	ahead := *c
	ahead.ctl = new(ringCtl) // releases nothing
	for end := c.ctl.tail.Load(); ahead.head != end; {
		var pkt packet
		ahead.ctl.tail.Store(end)
		if _, ok, _ := ahead.next(&pkt); !ok {
			return
		}
		f(&pkt)
		ahead.release()
	}
}

// release gives the current record back to the producer. The store releases what was
// read of it, for the loads of head in reserve and room: nothing is written over it
// before.
func (c *consumer) release() {
	c.head += c.size
	c.ctl.head.Store(c.head)
}

// roomMade reports, once, that the producer was waiting for room; see awaitRoom.
func (c *consumer) roomMade() bool {
	return c.ctl.waiting.Load() != 0 && c.ctl.waiting.Swap(0) != 0
}
