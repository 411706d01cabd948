package ucttest

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// What memory holds in checks of revocation.
const (
	floodByte = 0xA5 // written by operations
	oldByte   = 0x11 // there before they begin
	ownByte   = 0x3C // written by the owner after he has the memory back: nobody may change or see it
)

// floodLen is the length in bytes of the region that is flooded, and of each long
// operation as far as the transport takes so much: several times what a transport copies
// before it looks at the key again.
const floodLen = 1 << 20

// floodKind is an operation that is posted again and again.
type floodKind struct {
	name   string
	access access // the same as a single operation, of a few bytes
	n      int    // bytes of each
	post   func(f *flood, off int) (pending bool, err error)
}

// floodKinds are the claimed kinds: long zero-copy ones, streams of short ones, and
// atomics.
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

// flood accesses a region of a peer all the time, until its EP fails. It is driven by
// the goroutine that owns the iface of its link; others read what is atomic.
type flood struct {
	kind  *floodKind
	l     *link
	key   uct.RKey
	raddr uint64
	iov   []uct.IOV // local buffer: what is put, or read into

	off    int          // of the next operation
	open   int          // completions to come
	posted atomic.Int64 // accepted
	steps  atomic.Int64
	ended  atomic.Bool // nothing is posted any more
}

// newFlood makes a flood from the memory of its link's side.
func (p *pair) newFlood(t checkT, k *floodKind, l *link, raddr uint64, key uct.RKey) *flood {
	t.Helper()
	mem := p.memory(t, l.From, k.n, uct.AccessLocalWrite)
	buf := mem.Bytes()
	fillWith(buf, floodByte)
	return &flood{kind: k, l: l, raddr: raddr, key: key, iov: []uct.IOV{{Buf: buf, Mem: mem}}}
}

// Pack writes what is put.
func (f *flood) Pack(dst []byte) int { return copy(dst, f.iov[0].Buf) }

func (f *flood) completion() *uct.Completion {
	return &uct.Completion{Count: 1, Func: func(*uct.Completion) { f.open-- }}
}

// step posts, if the EP takes it, and progresses.
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

// String tells of it in complaints.
func (f *flood) String() string {
	return fmt.Sprintf("%s of %d bytes, %d posted", f.kind.name, f.kind.n, f.posted.Load())
}

// runner is a goroutine that repeats something.
type runner struct {
	stopped atomic.Bool
	ended   chan struct{}
}

// repeat runs step on a goroutine of its own until stop, at the latest until the check
// ends.
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

// stop ends the goroutine and waits for that. Idempotent.
func (r *runner) stop() {
	r.stopped.Store(true)
	<-r.ended
}

// progress is a step that drives an iface.
func (s *side) progress() {
	if s.Iface.Progress() == 0 {
		runtime.Gosched()
	}
}
