package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/race"
)

// Lengths are in bytes.
const (
	Len         = 1 << 20 // of the data of a ring
	RecordAlign = 64
	MaxPayload  = 4096 // the largest path MTU
	MaxRecord   = packetLen + MaxPayload

	dataAt = 4096         // the control words have a page of their own
	Span   = dataAt + Len // of the memory of a ring
)

// Control is in the link segment; each word is on separate cache lines. Head and Tail count bytes
// and never wrap.
type Control struct {
	Head    atomic.Uint64
	_       [120]byte
	Tail    atomic.Uint64
	_       [120]byte
	Waiting atomic.Uint32
	_       [124]byte
}

// ControlLen is the length of Control.
const (
	ControlLen = 384
	packetLen  = 64
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(Control{})-ControlLen]
	_ = [1]struct{}{}[unsafe.Sizeof(Packet{})-packetLen]
)

// Packet is the header of a record: the fields of BTH and its extension headers
// that the operation needs.
type Packet struct {
	Length  uint32 // of the record, a multiple of RecordAlign
	Op      uint8  // Op*
	Flags   uint8  // Flag*
	Status  uint8  // syndrome of a NAK or fault, RNR timer code
	_       uint8
	SrcQPN  uint32
	DstQPN  uint32
	MSN     uint32 // message number of the requester's QP
	Payload uint32 // bytes that follow the header
	RAddr   uint64 // read, write, atomic; responses: offset in the message
	RKey    uint32
	Imm     uint32
	SwapAdd uint64
	Compare uint64
	Total   uint32 // whole message
	Ext     uint32 // Q_Key of a datagram (DETH); with FlagXRC the SRQ's number (XRCETH)
}

// Producer is the sending side. Its owner serialises calls.
type Producer struct {
	Ctl  *Control
	data unsafe.Pointer
	tail uint64
	Head uint64 // last seen
	size uint64 // of the last reserved record: the peer may write to its header
}

// NewProducer returns the sending side of the unused ring at base.
func NewProducer(base unsafe.Pointer) Producer {
	return Producer{Ctl: (*Control)(base), data: unsafe.Add(base, dataAt)}
}

// Reserve returns room for a record with n payload bytes, or nil if the ring is
// full. The record is not visible before Publish.
func (p *Producer) Reserve(n int) *Packet {
	need := uint64(packetLen+n+RecordAlign-1) &^ (RecordAlign - 1)
	skip := uint64(0)
	if left := Len - p.tail%Len; left < need {
		skip = left
	}
	if p.tail+skip+need-p.Head > Len {
		p.Head = p.Ctl.Head.Load()
		if h := p.tail - p.Head; h > Len || h+skip+need > Len {
			return nil
		}
	}
	if skip > 0 {
		f := (*Packet)(unsafe.Add(p.data, p.tail%Len))
		f.Length, f.Op = uint32(skip), OpFiller
		p.tail += skip
	}
	pkt := (*Packet)(unsafe.Add(p.data, p.tail%Len))
	*pkt = Packet{Length: uint32(need), Payload: uint32(n)}
	p.size = need
	return pkt
}

// Room reports whether n bytes of records fit, whatever their lengths.
func (p *Producer) Room(n int) bool {
	if p.tail-p.Head+uint64(n)+MaxRecord <= Len {
		return true
	}
	p.Head = p.Ctl.Head.Load()
	used := p.tail - p.Head
	return used <= Len && used+uint64(n)+MaxRecord <= Len
}

// Body returns the payload of a reserved or received record.
func (pkt *Packet) Body() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(pkt), packetLen) }

// Publish makes the latest reserved record visible. The store releases the record for the load in
// Next, and it precedes the caller's loads of the peer's attention and sleeping words: see call in
// package softhca, and "A store, then a load" in mmio.
func (p *Producer) Publish(*Packet) {
	p.tail += p.size
	race.ReleaseToPeers()
	p.Ctl.Tail.Store(p.tail)
}

// AwaitRoom stores in Waiting that the producer waits, and then reports whether there is room, so
// that it need not wait. The consumer stores Head in Release and then loads Waiting in RoomMade, so
// one of them sees the store of the other.
func (p *Producer) AwaitRoom() bool {
	p.Ctl.Waiting.Store(1)
	return p.tail-p.Ctl.Head.Load() <= Len/2
}

// Consumer is the receiving side. Its owner serialises calls. The peer may write
// anything to the ring at any time: Next returns a checked copy of the
// header, and bytes of the payload may change while they are read.
type Consumer struct {
	Ctl  *Control
	data unsafe.Pointer
	Head uint64
	size uint64 // length of the current record
}

// NewConsumer returns the receiving side of the unused ring at base.
func NewConsumer(base unsafe.Pointer) Consumer {
	return Consumer{Ctl: (*Control)(base), data: unsafe.Add(base, dataAt)}
}

// Next copies the next header to pkt and returns its payload; ok is false if there is
// none. broken reports a malformed record, after which the ring must not be used, or more filler
// than fits into the ring: a peer that writes filler all the time cannot keep Next in its loop.
func (c *Consumer) Next(pkt *Packet) (body unsafe.Pointer, ok, broken bool) {
	for start := c.Head; c.Head-start <= Len; {
		avail := c.Ctl.Tail.Load() - c.Head
		if avail == 0 {
			return nil, false, false
		}
		race.AcquireFromPeers()
		at := c.Head % Len
		rec := (*Packet)(unsafe.Add(c.data, at))
		*pkt = *rec
		n := uint64(pkt.Length)
		if avail > Len || n < packetLen || n%RecordAlign != 0 || n > avail || at+n > Len {
			return nil, false, true
		}
		c.size = n
		if pkt.Op != OpFiller {
			if uint64(pkt.Payload) > n-packetLen || pkt.Payload > MaxPayload {
				return nil, false, true
			}
			return rec.Body(), true, false
		}
		c.Release()
	}
	return nil, false, true
}

// Each calls f with the headers of the published records, up to a malformed one, and does not consume
// them.
func (c *Consumer) Each(f func(*Packet)) {
	ahead := *c
	ahead.Ctl = new(Control) // releases nothing
	for end := c.Ctl.Tail.Load(); ahead.Head != end; {
		var pkt Packet
		ahead.Ctl.Tail.Store(end)
		if _, ok, _ := ahead.Next(&pkt); !ok {
			return
		}
		f(&pkt)
		ahead.Release()
	}
}

// Release returns the current record to the producer. The store orders the reads of the record before
// the loads of Head in Reserve and Room, so that the producer does not overwrite it earlier.
func (c *Consumer) Release() {
	c.Head += c.size
	c.Ctl.Head.Store(c.Head)
}

// RoomMade reports, once, that the producer was waiting for room; see AwaitRoom.
func (c *Consumer) RoomMade() bool {
	return c.Ctl.Waiting.Load() != 0 && c.Ctl.Waiting.Swap(0) != 0
}
