package ucp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/uct"
)

// TestAllocs: the data path allocates nothing after warm-up, in ucp and in the transports.
func TestAllocs(t *testing.T) {
	self := tlsets.Real("self", "self")
	self.Oneself = true
	for _, set := range []tlsets.Set{self, tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`), tlsets.Real("all")} {
		t.Run(set.Name, func(t *testing.T) { checkAllocs(t, set) })
	}
}

func checkAllocs(t *testing.T, set tlsets.Set) {
	p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
	ep, key, addr, local := p.A.EP, p.A.Key, p.B.Mem.Addr(), p.A.Mem.Bytes()
	params, result := &ucp.OpParams{Mem: p.A.Mem}, new(uint64)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"put 8", func() { p.FinishAlone(ep.Put(local[:8], addr, key, nil)) }},
		{"put bcopy", func() { p.FinishAlone(ep.Put(local[:2000], addr, key, nil)) }},
		{"put bcopy, fragments", func() { p.FinishAlone(ep.Put(local[:40000], addr, key, nil)) }},
		{"put zcopy", func() { p.FinishAlone(ep.Put(local[:40000], addr, key, params)) }},
		{"get 8", func() { p.FinishAlone(ep.Get(local[:8], addr, key, nil)) }},
		{"get bcopy, fragments", func() { p.FinishAlone(ep.Get(local[:40000], addr, key, nil)) }},
		{"get zcopy", func() { p.FinishAlone(ep.Get(local[:40000], addr, key, params)) }},
		{"put zcopy, implicit", func() { p.FinishAlone(nil, ep.PutImplicit(local[:40000], addr, key, params)) }},
		{"get 8, implicit", func() { p.FinishAlone(nil, ep.GetImplicit(local[:8], addr, key, nil)) }},
		{"get zcopy, implicit", func() { p.FinishAlone(nil, ep.GetImplicit(local[:40000], addr, key, params)) }},
		{"get that may be given up", func() { p.FinishAlone(nil, ep.GetWait(ctx, local[:8], addr, key, nil)) }},
		{"post", func() { p.FinishAlone(nil, ep.AtomicPost(uct.AtomicAdd, 8, 1, addr, key)) }},
		{"fetch", func() { p.FinishAlone(ep.AtomicFetch(uct.AtomicAdd, 8, 1, result, addr, key)) }},
		{"cswap", func() { p.FinishAlone(ep.AtomicCSwap(8, 0, 1, result, addr, key)) }},
		{"fetch, implicit", func() { p.FinishAlone(nil, ep.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, result, addr, key)) }},
		{"cswap, implicit", func() { p.FinishAlone(nil, ep.AtomicCSwapImplicit(8, 0, 1, result, addr, key)) }},
		{"emulated", func() { p.FinishAlone(ep.AtomicFetch(uct.AtomicXor, 4, 1, result, addr, key)) }},
		{"fence", func() { p.FinishAlone(nil, ep.Fence()) }},
		{"worker flush", func() { p.FinishAlone(p.A.W.Flush()) }},
	} {
		run := func() {
			tc.do()
			p.FinishAlone(ep.Flush())
			p.A.W.Progress()
		}
		for range 300 { // warm the pools of all layers
			run()
		}
		testenv.NoAllocs(t, tc.name, run)
	}
	testenv.NoAllocs(t, "256 puts before a flush", func() {
		for range 256 {
			p.FinishAlone(ep.Put(local[:8], addr, key, nil))
		}
		p.FinishAlone(ep.Flush())
	})
}

// TestAllocs_ByTheTarget: atomics that the target executes.
func TestAllocs_ByTheTarget(t *testing.T) {
	p := ucppair.New(t, fakes("like tcp"), ucp.Config{})
	p.Connect().Warm()
	result := new(uint64)
	got := testing.AllocsPerRun(100, func() {
		r, err := p.A.EP.AtomicFetch(uct.AtomicAdd, 4, 1, result, p.B.Mem.Addr(), p.A.Key)
		if err != nil {
			panic(err)
		}
		for !r.Done() {
			p.Step()
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
			p := ucppair.New(b, tlsets.Real("ib", `\rc`, `\ud`), ucp.Config{}).Connect().Warm()
			local, params := p.A.Mem.Bytes()[:min(n, tlsets.MemLen)], &ucp.OpParams{Mem: p.A.Mem}
			b.ReportAllocs()
			b.SetBytes(int64(n))
			i := 0
			for b.Loop() {
				r, err := p.A.EP.Put(local, p.B.Mem.Addr(), p.A.Key, params)
				if i++; i%64 == 0 || r != nil {
					p.FinishAlone(r, err)
					p.FinishAlone(p.A.EP.Flush())
				}
			}
		})
	}
}

func BenchmarkProgress(b *testing.B) {
	b.Run("nothing connected", func(b *testing.B) {
		p := ucppair.New(b, tlsets.Real("ib", `\rc`, `\ud`), ucp.Config{})
		for b.Loop() {
			p.A.W.Progress()
		}
	})
	b.Run("one connection", func(b *testing.B) {
		p := ucppair.New(b, tlsets.Real("ib", `\rc`, `\ud`), ucp.Config{}).Connect().Warm()
		idleEnd(&p.A)
		for b.Loop() {
			p.A.W.Progress()
		}
	})
}

// idleEnd makes progress until there are no events any more and ifaces without connections are not polled.
func idleEnd(x *ucppair.End) {
	for quiet := 0; quiet < 2*engine.CooldownPolls; quiet++ {
		if x.W.Progress() > 0 {
			quiet = 0
		}
	}
}
