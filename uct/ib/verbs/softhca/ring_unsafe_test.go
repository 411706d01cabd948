package softhca

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

// newRing makes both ends of a ring in fresh memory.
func newRing() (*producer, *consumer) {
	mem := make([]uint64, ringSpan/8) // aligned to 8 bytes, which is what the words need
	base := linkMem{unsafe.Pointer(&mem[0])}
	p, c := base.producer(0), base.consumer(0)
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
	var got packet
	for i := range uint32(20000) {
		n := rng.IntN(maxPayload + 1)
		if pkt := p.reserve(n); pkt != nil {
			pkt.op, pkt.msn = pktSend, i
			payload := unsafe.Slice((*byte)(pkt.body()), n)
			for j := range payload {
				payload[j] = byte(i) + byte(j)
			}
			p.publish(pkt)
			queue = append(queue, sent{n, i})
			if rng.IntN(3) > 0 {
				continue
			}
		}
		require.NotEmpty(t, queue)
		body, ok, broken := c.next(&got)
		require.True(t, ok)
		require.False(t, broken)
		want := queue[0]
		queue = queue[1:]
		require.Equal(t, want.seed, got.msn)
		require.Equal(t, want.n, int(got.payload))
		for j, b := range unsafe.Slice((*byte)(body), want.n) {
			if b != byte(want.seed)+byte(j) {
				t.Fatalf("packet %d byte %d is %d", want.seed, j, b)
			}
		}
		c.release()
	}
}

func TestRing_FullThenRoom(t *testing.T) {
	p, c := newRing()
	n := 0
	for ; ; n++ {
		pkt := p.reserve(maxPayload)
		if pkt == nil {
			break
		}
		pkt.op = pktSend
		p.publish(pkt)
	}
	assert.Equal(t, ringLen/maxRecord, n)
	assert.False(t, p.room(1))
	assert.False(t, p.awaitRoom())
	var pkt packet
	for range n/2 + 1 {
		_, ok, _ := c.next(&pkt)
		require.True(t, ok)
		c.release()
	}
	assert.True(t, c.roomMade(), "the producer had said that it waits")
	assert.False(t, c.roomMade(), "said once")
	assert.True(t, p.room(maxRecord))
	assert.NotNil(t, p.reserve(maxPayload))
}

// What the peer writes to the header of a record while it is made does not move the
// producer.
func TestRing_PeerWritesToAReservedRecord(t *testing.T) {
	p, _ := newRing()
	pkt := p.reserve(100)
	pkt.length = 1 // the peer does
	p.publish(pkt)
	assert.EqualValues(t, 192, p.ctl.tail.Load())
	next := p.reserve(1)
	assert.EqualValues(t, 192, uintptr(unsafe.Pointer(next))-uintptr(p.data))
}

// A peer that goes on writing filler does not keep the consumer: every look at the ring
// ends, with nothing or, where the peer wrote faster than it was read, as broken.
func TestRing_EndlessFiller(t *testing.T) {
	p, c := newRing()
	for range ringLen / recordAlign {
		pkt := p.reserve(0)
		pkt.op = pktFiller
		p.publish(pkt)
	}
	var stop uatomic.Bool
	done := make(chan struct{})
	defer func() { stop.Store(true); <-done }()
	go func() {
		defer close(done)
		for !stop.Load() {
			c.ctl.tail.Store(c.ctl.head.Load() + ringLen)
			runtime.Gosched()
		}
	}()
	const looks = 20
	var pkt packet
	for range looks {
		_, ok, _ := c.next(&pkt)
		require.False(t, ok)
		runtime.Gosched()
	}
}

// FuzzRing_Consumer gives the consumer a ring that a hostile peer wrote.
func FuzzRing_Consumer(f *testing.F) {
	f.Add(uint64(64), []byte{64, 0, 0, 0, pktSend})
	f.Add(uint64(1<<40), []byte{0, 0, 0, 0})
	f.Add(uint64(128), []byte{0xff, 0xff, 0xff, 0xff, pktFiller})
	f.Fuzz(func(t *testing.T, tail uint64, data []byte) {
		mem := make([]uint64, ringSpan/8)
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), ringSpan)
		copy(raw[4096:], data)
		base := linkMem{unsafe.Pointer(&mem[0])}
		c := base.consumer(0)
		c.ctl.tail.Store(tail)
		var pkt packet
		for range ringLen / recordAlign {
			body, ok, _ := c.next(&pkt)
			if !ok {
				return
			}
			at := uintptr(body) - uintptr(unsafe.Pointer(&raw[4096]))
			if at+uintptr(pkt.payload) > ringLen {
				t.Fatalf("payload of %d bytes at %d leaves the ring", pkt.payload, at)
			}
			c.release()
		}
	})
}

// Words that processes share lie aligned, wherever the memory that holds them is mapped:
// a segment begins with a page.
func TestAlignment(t *testing.T) {
	for name, a := range map[string][2]uintptr{
		"ring control": {unsafe.Alignof(ringCtl{}), unsafe.Sizeof(ringCtl{})},
		"packet":       {unsafe.Alignof(packet{}), unsafe.Sizeof(packet{})},
		"control page": {unsafe.Alignof(control{}), unsafe.Sizeof(control{})},
		"QP entry":     {unsafe.Alignof(qpEntry{}), entryLen},
		"MR entry":     {unsafe.Alignof(mrEntry{}), entryLen},
	} {
		assert.Contains(t, []uintptr{4, 8}, a[0], name)
		assert.Zero(t, a[1]%a[0], name)
	}
	for name, off := range map[string]int{"requests": linkReq, "responses": linkResp, "guards": linkGuards,
		"QPs": tableQPs, "MRs": tableMRs, "records": recordAlign, "a ring": ringSpan, "a guard": guardLen} {
		assert.Zero(t, off%64, name)
	}
}

func TestPacket_Layout(t *testing.T) {
	var pkt packet
	assert.EqualValues(t, 24, unsafe.Offsetof(pkt.raddr))
	assert.EqualValues(t, 40, unsafe.Offsetof(pkt.swapAdd))
	pkt.length = 0x01020304
	assert.Equal(t, uint32(0x01020304), binary.NativeEndian.Uint32(unsafe.Slice((*byte)(unsafe.Pointer(&pkt)), 4)))
}
