package ucttest

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Contents of memory in checks of revocation.
const (
	floodByte = 0xA5 // written by operations
	oldByte   = 0x11 // initial content of the target
	ownByte   = 0x3C // written by the owner after Mem.Close: no peer may read or overwrite it
)

// floodLen is the length of the target region in bytes, and the maximum length of one operation. It is several times
// the length that a transport copies between two checks of the key.
const floodLen = 1 << 20

// floodKind is an operation that a flood repeats.
type floodKind struct {
	name   string
	access access // the same variant as a single operation of a few bytes
	n      int    // bytes of one operation
	post   func(f *flood, off int) (pending bool, err error)
}

// floodKinds returns the claimed operations: zero-copy operations of up to floodLen bytes, short and bcopy puts of up
// to 4 KiB, and atomics.
func floodKinds(a *uct.IfaceAttr) (out []floodKind) {
	add := func(cap uct.Caps, name string, n int, post func(*flood, int) (bool, error)) {
		for _, x := range accesses(a) {
			if a.Caps.Has(cap) && x.name == name {
				out = append(out, floodKind{name, x, min(n, floodLen), post})
			}
		}
	}
	const stream = 4 << 10
	add(uct.CapPutZcopy, "put zcopy", a.Put.MaxZcopy, func(f *flood, off int) (bool, error) {
		return f.l.Put.PutZcopy(f.iov, f.raddr+uint64(off), f.key, f.completion())
	})
	add(uct.CapPutShort, "put short", min(stream, a.Put.MaxShort), func(f *flood, off int) (bool, error) {
		return false, f.l.Put.PutShort(f.iov[0].Buf, f.raddr+uint64(off), f.key)
	})
	add(uct.CapPutBcopy, "put bcopy", min(stream, a.Put.MaxBcopy), func(f *flood, off int) (bool, error) {
		return false, f.l.Put.PutBcopy(f.iov[0].Buf, f.raddr+uint64(off), f.key)
	})
	add(uct.CapGetZcopy, "get zcopy", a.Get.MaxZcopy, func(f *flood, off int) (bool, error) {
		return f.l.Get.GetZcopy(f.iov, f.raddr+uint64(off), f.key, f.completion())
	})
	swap := atomicVariant{uct.AtomicSwap, 8, true}
	add(uct.CapAtomic64, swap.name(), 8, func(f *flood, off int) (bool, error) {
		const value = floodByte * 0x0101010101010101
		return f.l.Atomics.AtomicFetch(uct.AtomicSwap, 8, value, new(uint64), f.raddr+uint64(off), f.key, f.completion())
	})
	return out
}

// flood repeats an operation on a region of a peer until its EP fails. The goroutine that owns the iface of its link
// drives it; other goroutines may read the atomic fields.
type flood struct {
	kind  *floodKind
	l     *link
	key   uct.RKey
	raddr uint64
	iov   []uct.IOV // local buffer: source of puts, destination of gets

	off    int          // offset of the next operation in the region
	open   int          // outstanding completions
	posted atomic.Int64 // operations that the EP accepted
	steps  atomic.Int64
	ended  atomic.Bool // step posts no more operations
}

// newFlood returns a flood of the region at raddr. Its local buffer is memory of l.From.
func (p *pair) newFlood(t checkT, k *floodKind, l *link, raddr uint64, key uct.RKey) *flood {
	t.Helper()
	mem := p.memory(t, l.From, k.n, uct.AccessLocalWrite)
	buf := mem.Bytes()
	fillWith(buf, floodByte)
	return &flood{kind: k, l: l, raddr: raddr, key: key, iov: []uct.IOV{{Buf: buf, Mem: mem}}}
}

// Pack implements uct.Packer.
func (f *flood) Pack(dst []byte) int { return copy(dst, f.iov[0].Buf) }

func (f *flood) completion() *uct.Completion {
	return &uct.Completion{Count: 1, Func: func(*uct.Completion) { f.open-- }}
}

// step posts one operation unless the flood has ended, and calls Progress.
func (f *flood) step() {
	if !f.ended.Load() {
		f.post()
	}
	if f.l.From.Iface.Progress() == 0 {
		runtime.Gosched()
	}
	f.steps.Add(1)
}

func (f *flood) post() {
	pending, err := f.kind.post(f, f.off)
	switch {
	case err == nil:
		f.posted.Add(1)
		if f.off += f.kind.n; f.off+f.kind.n > floodLen {
			f.off = 0
		}
	case err != uct.ErrNoResource && err != ucs.ErrRemoteAccess:
		f.ended.Store(true)
	}
	if pending {
		f.open++
	}
}

// String describes the flood in messages of failed checks.
func (f *flood) String() string {
	return fmt.Sprintf("%s of %d bytes, %d posted", f.kind.name, f.kind.n, f.posted.Load())
}

// runner is a goroutine that calls a function in a loop.
type runner struct {
	stopped atomic.Bool
	ended   chan struct{}
}

// repeat calls step in a loop on a new goroutine until stop. The clean-up of the check calls stop.
func repeat(t checkT, step func()) *runner {
	r := &runner{ended: make(chan struct{})}
	t.Cleanup(r.stop)
	go func() {
		defer close(r.ended)
		for !r.stopped.Load() {
			step()
		}
	}()
	return r
}

// stop waits until the goroutine has returned. Idempotent.
func (r *runner) stop() {
	r.stopped.Store(true)
	<-r.ended
}

// progress calls Progress once and yields if the iface was idle.
func (s *side) progress() {
	if s.Iface.Progress() == 0 {
		runtime.Gosched()
	}
}
