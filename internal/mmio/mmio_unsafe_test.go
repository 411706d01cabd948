package mmio

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// page is a register page with guard bytes before and after the register.
type page struct {
	before [64]byte
	reg    [64]byte
	after  [64]byte
}

func newPage() *page {
	p := &page{}
	for i := range p.before {
		p.before[i], p.reg[i], p.after[i] = 0xa5, 0xa5, 0xa5
	}
	return p
}

func (p *page) guardsIntact() bool {
	fresh := newPage()
	return p.before == fresh.before && p.after == fresh.after
}

func TestDoorbell64_StoresTheBytesAsTheyAre(t *testing.T) {
	p := newPage()
	wqe := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	Doorbell64(unsafe.Pointer(&p.reg), *(*uint64)(unsafe.Pointer(&wqe)))
	assert.Equal(t, wqe[:], p.reg[:8])
	assert.Equal(t, byte(0xa5), p.reg[8], "one byte too many")
	assert.True(t, p.guardsIntact())
}

func TestCopy64_CopiesExactly64Bytes(t *testing.T) {
	p := newPage()
	var src [64]byte
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	want := src
	Copy64(unsafe.Pointer(&p.reg), unsafe.Pointer(&src))
	assert.Equal(t, want, p.reg)
	assert.Equal(t, want, src, "the source changed")
	assert.True(t, p.guardsIntact())
}

// A consumer that sees the last word of the copy must see the others too: the
// stores ascend. This holds on amd64, which keeps the order of stores.
func TestCopy64_StoresAscend(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("store order is architectural on amd64 only, this is %s", runtime.GOARCH)
	}
	const rounds = 2000
	reg := new([8]uint64)
	done := make(chan uint64)
	go func() {
		var bad uint64
		for last := uint64(0); last < rounds; runtime.Gosched() {
			last = atomic.LoadUint64(&reg[7])
			if atomic.LoadUint64(&reg[0]) < last {
				bad++
			}
		}
		done <- bad
	}()
	var src [8]uint64
	for n := uint64(1); n <= rounds; n++ {
		for i := range src {
			src[i] = n
		}
		Copy64(unsafe.Pointer(reg), unsafe.Pointer(&src))
		runtime.Gosched()
	}
	assert.Zero(t, <-done, "the last word was seen before the first")
}

func TestFences_ReturnAndKeepMemory(t *testing.T) {
	word := uint64(0x0123456789abcdef)
	for range 100 {
		ToDevice()
		FlushWC()
		FromDevice()
		Pause()
		PrefetchW(nil)
	}
	assert.Equal(t, uint64(0x0123456789abcdef), word)
}

func TestStoreRelease_StoresOnlyItsWord(t *testing.T) {
	mem := new([4]uint64)
	for i := range mem {
		mem[i] = ^uint64(0)
	}
	StoreRelease64(unsafe.Pointer(&mem[1]), 0x1122334455667788)
	StoreRelease32(unsafe.Pointer(&mem[2]), 0xdeadbeef)
	assert.Equal(t, ^uint64(0), mem[0])
	assert.Equal(t, uint64(0x1122334455667788), mem[1])
	assert.Equal(t, uint32(0xdeadbeef), LoadAcquire32(unsafe.Pointer(&mem[2])))
	upper := (*[8]byte)(unsafe.Pointer(&mem[2]))[4:]
	assert.Equal(t, uint32(0xffffffff), binary.NativeEndian.Uint32(upper))
	assert.Equal(t, ^uint64(0), mem[3])

	m := new(message)
	publishRecord(m, 5)
	assert.Equal(t, message{5, ^uint32(5), 5, 5}, *m)

	pair := new([2]uint64)
	publishTwice(pair, 7)
	assert.Equal(t, [2]uint64{7, 7}, *pair)
}

// message is data and the flag that publishes it, close together so that a
// compiler that merges or moves stores would show.
type message struct {
	a, b uint32
	flag uint32
	pad  uint32
}

func TestStoreRelease_PublishesWhatWasStoredBefore(t *testing.T) {
	const rounds = 5000
	m, ack := new(message), new(uint32)
	bad := make(chan int)
	go func() {
		wrong := 0
		for n := uint32(1); n <= rounds; n++ {
			for LoadAcquire32(unsafe.Pointer(&m.flag)) != n {
				runtime.Gosched()
			}
			if m.a != n || m.b != ^n {
				wrong++
			}
			StoreRelease32(unsafe.Pointer(ack), n)
		}
		bad <- wrong
	}()
	for n := uint32(1); n <= rounds; n++ {
		publish(m, n)
		for LoadAcquire32(unsafe.Pointer(ack)) != n {
			runtime.Gosched()
		}
	}
	assert.Zero(t, <-bad, "the flag was seen before the data")
}

// publish is what a ring does; listing_test.go reads the code made for it.
//
//go:noinline
func publish(m *message, n uint32) {
	m.a = n
	m.b = ^n
	StoreRelease32(unsafe.Pointer(&m.flag), n)
	m.pad = n
}

// publishRecord is what a post to a device does.
//
//go:noinline
func publishRecord(m *message, n uint32) {
	m.a = n
	m.b = ^n
	StoreRecord32(unsafe.Pointer(&m.flag), n)
	m.pad = n
}

// publishTwice stores 8 bytes and then their neighbour.
//
//go:noinline
func publishTwice(m *[2]uint64, n uint64) {
	m[0] = n
	StoreRelease64(unsafe.Pointer(&m[1]), n)
}

func BenchmarkStoreRelease64(b *testing.B) {
	word := new(uint64)
	for b.Loop() {
		StoreRelease64(unsafe.Pointer(word), 1)
	}
}

func BenchmarkDoorbell64(b *testing.B) {
	reg := new(uint64)
	for b.Loop() {
		Doorbell64(unsafe.Pointer(reg), 1)
		FlushWC()
	}
}

func BenchmarkCopy64(b *testing.B) {
	dst, src := new([64]byte), new([64]byte)
	b.SetBytes(64)
	for b.Loop() {
		Copy64(unsafe.Pointer(dst), unsafe.Pointer(src))
	}
}
