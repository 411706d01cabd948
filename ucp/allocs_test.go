package ucp

import (
	"context"
	"fmt"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// mustEnd waits for an operation by progress of the issuing side only.
func (p *pair) mustEnd(r *Request, err error) {
	for err == nil && r != nil && !r.Done() {
		p.a.w.Progress()
	}
	if r != nil && err == nil {
		err = r.err()
		r.Release()
	}
	if err != nil {
		panic(err)
	}
}

// TestAllocs: nothing on the data path allocates once the pools are warm, from ucp
// down to the device.
func TestAllocs(t *testing.T) {
	self := real("self", "self")
	self.oneself = true
	for _, set := range []transports{self, real("sm", "sm"), real("ib", `\rc`, `\ud`), real("all")} {
		t.Run(set.name, func(t *testing.T) { checkAllocs(t, set) })
	}
}

func checkAllocs(t *testing.T, set transports) {
	p := newPair(t, set, Config{}).connect().warm()
	ep, key, addr, local := p.a.ep, p.a.key, p.b.mem.Addr(), p.a.mem.Bytes()
	params, result := &OpParams{Mem: p.a.mem}, new(uint64)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"put 8", func() { p.mustEnd(ep.Put(local[:8], addr, key, nil)) }},
		{"put bcopy", func() { p.mustEnd(ep.Put(local[:2000], addr, key, nil)) }},
		{"put bcopy, fragments", func() { p.mustEnd(ep.Put(local[:40000], addr, key, nil)) }},
		{"put zcopy", func() { p.mustEnd(ep.Put(local[:40000], addr, key, params)) }},
		{"get 8", func() { p.mustEnd(ep.Get(local[:8], addr, key, nil)) }},
		{"get bcopy, fragments", func() { p.mustEnd(ep.Get(local[:40000], addr, key, nil)) }},
		{"get zcopy", func() { p.mustEnd(ep.Get(local[:40000], addr, key, params)) }},
		{"put zcopy, implicit", func() { p.mustEnd(nil, ep.PutImplicit(local[:40000], addr, key, params)) }},
		{"get 8, implicit", func() { p.mustEnd(nil, ep.GetImplicit(local[:8], addr, key, nil)) }},
		{"get zcopy, implicit", func() { p.mustEnd(nil, ep.GetImplicit(local[:40000], addr, key, params)) }},
		{"get that may be given up", func() { p.mustEnd(nil, ep.GetWait(ctx, local[:8], addr, key, nil)) }},
		{"post", func() { p.mustEnd(nil, ep.AtomicPost(uct.AtomicAdd, 8, 1, addr, key)) }},
		{"fetch", func() { p.mustEnd(ep.AtomicFetch(uct.AtomicAdd, 8, 1, result, addr, key)) }},
		{"cswap", func() { p.mustEnd(ep.AtomicCSwap(8, 0, 1, result, addr, key)) }},
		{"fetch, implicit", func() { p.mustEnd(nil, ep.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, result, addr, key)) }},
		{"cswap, implicit", func() { p.mustEnd(nil, ep.AtomicCSwapImplicit(8, 0, 1, result, addr, key)) }},
		{"emulated", func() { p.mustEnd(ep.AtomicFetch(uct.AtomicXor, 4, 1, result, addr, key)) }},
		{"fence", func() { p.mustEnd(nil, ep.Fence()) }},
		{"worker flush", func() { p.mustEnd(p.a.w.Flush()) }},
	} {
		run := func() {
			tc.do()
			p.mustEnd(ep.Flush())
			p.a.w.Progress()
		}
		for range 300 { // warm the pools of every layer
			run()
		}
		testenv.NoAllocs(t, tc.name, run)
	}
	testenv.NoAllocs(t, "256 puts before a flush", func() {
		for range 256 {
			p.mustEnd(ep.Put(local[:8], addr, key, nil))
		}
		p.mustEnd(ep.Flush())
	})
}

// TestAllocs_ByTheTarget: atomics that the target executes.
func TestAllocs_ByTheTarget(t *testing.T) {
	p, _ := fakePair(t, Config{}, likeTCP())
	p.connect().warm()
	result := new(uint64)
	got := testing.AllocsPerRun(100, func() {
		r, err := p.a.ep.AtomicFetch(uct.AtomicAdd, 4, 1, result, p.b.mem.Addr(), p.a.key)
		if err != nil {
			panic(err)
		}
		for !r.Done() {
			p.step()
		}
		r.Release()
	})
	const byTheFake = 2 // a buffer for each of the two messages
	if !testenv.RaceEnabled && got > byTheFake {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{8, 1024, 65536} {
		b.Run(fmt.Sprintf("ib/%dB", n), func(b *testing.B) {
			p := newPair(b, real("ib", `\rc`, `\ud`), Config{}).connect().warm()
			local, params := p.a.mem.Bytes()[:min(n, memLen)], &OpParams{Mem: p.a.mem}
			b.ReportAllocs()
			b.SetBytes(int64(n))
			i := 0
			for b.Loop() {
				r, err := p.a.ep.Put(local, p.b.mem.Addr(), p.a.key, params)
				if i++; i%64 == 0 || r != nil {
					p.mustEnd(r, err)
					p.mustEnd(p.a.ep.Flush())
				}
			}
		})
	}
}

func BenchmarkProgress(b *testing.B) {
	b.Run("nothing connected", func(b *testing.B) {
		p := newPair(b, real("ib", `\rc`, `\ud`), Config{})
		for b.Loop() {
			p.a.w.Progress()
		}
	})
	b.Run("one connection", func(b *testing.B) {
		p := newPair(b, real("ib", `\rc`, `\ud`), Config{}).connect().warm()
		p.idle()
		for b.Loop() {
			p.a.w.Progress()
		}
	})
}
