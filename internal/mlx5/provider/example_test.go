package provider_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Which doorbell register a queue pair has. Outside thread domains queue pairs share the registers
// of the context's static pages, under a lock. A thread domain has a register of its own, without a
// lock, and takes a page for it.
func Example() {
	driver := mlx5.Config{TotalUUARs: 4, LowLatUUARs: mlx5.NoLowLatUUARs}
	ctx := must(must(softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop, Queues: driver})).Open())

	pd, cq := must(ctx.AllocPD()), must(ctx.CreateCQ(verbs.CQInitAttr{Depth: 16}))
	attr := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 16}}
	show := func(what string, qp *verbs.QP) {
		raw := must(provider.RawQPOf(qp)) // what direct verbs work with
		used, _ := ctx.Resources()
		fmt.Printf("%s: %d blocks, lock %t; the context has %d UAR pages, uses %d of %d micro-UARs\n",
			what, raw.SQ.Count, raw.UAR.Shared != nil, used.UARPages, used.UUARsUsed, used.UUARs)
	}
	shared := must(pd.CreateQP(attr))
	show("static", shared)
	attr.TD = must(ctx.AllocTD(verbs.TDInitAttr{}))
	own := must(pd.CreateQP(attr))
	show("thread domain", own)
	for _, close := range []func() error{own.Close, attr.TD.Close, shared.Close, cq.Close, pd.Close, ctx.Close} {
		check(close())
	}
	// Output:
	// static: 16 blocks, lock true; the context has 2 UAR pages, uses 1 of 4 micro-UARs
	// thread domain: 16 blocks, lock false; the context has 3 UAR pages, uses 2 of 6 micro-UARs
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
