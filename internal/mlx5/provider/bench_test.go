package provider

import (
	"testing"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// BenchmarkPostPoll is the driver's share of a signaled work request: encode,
// doorbell, parse, on a device that only decodes and completes (about 10 ns).
func BenchmarkPostPoll(b *testing.B) {
	run := func(name string, attr func(r *rig) verbs.QPInitAttr, wr verbs.SendWR) {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, mlx5.Config{})
			a := attr(r)
			qp := r.qp(a)
			cq := qp.SendCQ()
			list := []verbs.SendWR{wr}
			var wc [4]verbs.WC
			b.ReportAllocs()
			for b.Loop() {
				if n, err := qp.PostSend(list); n != 1 {
					b.Fatal(err)
				}
				if n := cq.Poll(wc[:]); n != 1 {
					b.Fatal(n)
				}
			}
		})
	}
	locked := func(*rig) verbs.QPInitAttr { return verbs.QPInitAttr{} }
	free := func(r *rig) verbs.QPInitAttr {
		td, err := r.ctx.AllocTD(verbs.TDInitAttr{})
		if err != nil {
			b.Fatal(err)
		}
		r.t.Cleanup(func() { _ = td.Close() })
		return verbs.QPInitAttr{TD: td, SendCQ: r.cq(verbs.CQInitAttr{SingleThreaded: true})}
	}
	sge := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{{Addr: 1, Length: 64, LKey: 1}}}
	run("inline8/locked", locked, inlineWrite(1, 8))
	run("inline8/td", free, inlineWrite(1, 8))
	run("sge/locked", locked, sge)
	run("sge/td", free, sge)
}
