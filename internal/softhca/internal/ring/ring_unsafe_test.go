package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"
)

// newRing creates both sides of a ring in new memory.
func newRing() (*Producer, *Consumer) {
	mem := make([]uint64, Span/8) // aligned to 8 bytes, as the words require
	base := unsafe.Pointer(&mem[0])
	p, c := NewProducer(base), NewConsumer(base)
	return &p, &c
}

func TestRing_CarriesPacketsInOrder(t *testing.T) {
	p, c := newRing()
	rng := rand.New(rand.NewPCG(1, 2))
	type sent struct {
		n    int
		seed uint32
	}
	var queue []sent
	var got Packet
	for i := range uint32(20000) {
		n := rng.IntN(MaxPayload + 1)
		if pkt := p.Reserve(n); pkt != nil {
			pkt.Op, pkt.MSN = OpSend, i
			payload := unsafe.Slice((*byte)(pkt.Body()), n)
			for j := range payload {
				payload[j] = byte(i) + byte(j)
			}
			p.Publish(pkt)
			queue = append(queue, sent{n, i})
			if rng.IntN(3) > 0 {
				continue
			}
		}
		require.NotEmpty(t, queue)
		body, ok, broken := c.Next(&got)
		require.True(t, ok)
		require.False(t, broken)
		want := queue[0]
		queue = queue[1:]
		require.Equal(t, want.seed, got.MSN)
		require.Equal(t, want.n, int(got.Payload))
		for j, b := range unsafe.Slice((*byte)(body), want.n) {
			if b != byte(want.seed)+byte(j) {
				t.Fatalf("packet %d byte %d is %d", want.seed, j, b)
			}
		}
		c.Release()
	}
}

func TestRing_FullThenRoom(t *testing.T) {
	p, c := newRing()
	n := 0
	for ; ; n++ {
		pkt := p.Reserve(MaxPayload)
		if pkt == nil {
			break
		}
		pkt.Op = OpSend
		p.Publish(pkt)
	}
	assert.Equal(t, Len/MaxRecord, n)
	assert.False(t, p.Room(1))
	assert.False(t, p.AwaitRoom())
	var pkt Packet
	for range n/2 + 1 {
		_, ok, _ := c.Next(&pkt)
		require.True(t, ok)
		c.Release()
	}
	assert.True(t, c.RoomMade(), "the producer waits for room")
	assert.False(t, c.RoomMade(), "RoomMade reports it once")
	assert.True(t, p.Room(MaxRecord))
	assert.NotNil(t, p.Reserve(MaxPayload))
}

// A write of the peer to the header of a reserved record does not change the position of the Producer.
func TestRing_PeerWritesToReservedRecord(t *testing.T) {
	p, _ := newRing()
	pkt := p.Reserve(100)
	pkt.Length = 1 // as the peer could
	p.Publish(pkt)
	assert.EqualValues(t, 192, p.Ctl.Tail.Load())
	next := p.Reserve(1)
	assert.EqualValues(t, 192, uintptr(unsafe.Pointer(next))-uintptr(p.data))
}

// A peer that continues to write filler does not keep the consumer busy: Next always returns, without a
// packet or, if the peer writes faster than Next reads, with broken set.
func TestRing_EndlessFiller(t *testing.T) {
	p, c := newRing()
	for range Len / RecordAlign {
		pkt := p.Reserve(0)
		pkt.Op = OpFiller
		p.Publish(pkt)
	}
	var stop uatomic.Bool
	done := make(chan struct{})
	defer func() { stop.Store(true); <-done }()
	go func() {
		defer close(done)
		for !stop.Load() {
			c.Ctl.Tail.Store(c.Ctl.Head.Load() + Len)
			runtime.Gosched()
		}
	}()
	const looks = 20
	var pkt Packet
	for range looks {
		_, ok, _ := c.Next(&pkt)
		require.False(t, ok)
		runtime.Gosched()
	}
}

// FuzzRing_Consumer reads rings with arbitrary contents, as of a hostile peer.
func FuzzRing_Consumer(f *testing.F) {
	f.Add(uint64(64), []byte{64, 0, 0, 0, OpSend})
	f.Add(uint64(1<<40), []byte{0, 0, 0, 0})
	f.Add(uint64(128), []byte{0xff, 0xff, 0xff, 0xff, OpFiller})
	f.Fuzz(func(t *testing.T, tail uint64, data []byte) {
		mem := make([]uint64, Span/8)
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), Span)
		copy(raw[4096:], data)
		base := unsafe.Pointer(&mem[0])
		c := NewConsumer(base)
		c.Ctl.Tail.Store(tail)
		var pkt Packet
		for range Len / RecordAlign {
			body, ok, _ := c.Next(&pkt)
			if !ok {
				return
			}
			at := uintptr(body) - uintptr(unsafe.Pointer(&raw[4096]))
			if at+uintptr(pkt.Payload) > Len {
				t.Fatalf("payload of %d bytes at %d leaves the ring", pkt.Payload, at)
			}
			c.Release()
		}
	})
}
func TestPacket_Layout(t *testing.T) {
	var pkt Packet
	assert.EqualValues(t, 24, unsafe.Offsetof(pkt.RAddr))
	assert.EqualValues(t, 40, unsafe.Offsetof(pkt.SwapAdd))
	pkt.Length = 0x01020304
	assert.Equal(t, uint32(0x01020304), binary.NativeEndian.Uint32(unsafe.Slice((*byte)(unsafe.Pointer(&pkt)), 4)))
}
