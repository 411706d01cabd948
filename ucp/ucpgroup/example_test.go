package ucpgroup_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Three ranks of one process: each sends to the next one, and all compute the sum of the received numbers.
func Example() {
	c, err := gucx.Open()
	check(err)
	var ranks sync.WaitGroup
	for _, boot := range ucpgroup.InProcess(3) {
		ranks.Go(func() { check(work(context.Background(), c, boot)) })
	}
	ranks.Wait()
	check(c.Close())
	// Output: the sum is 60
}

func work(ctx context.Context, c *ucp.Context, boot ucpgroup.Bootstrap) error {
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	defer w.Close()
	group, err := ucpgroup.New(ctx, w, boot)
	if err != nil {
		return err
	}
	world, n := group.World(), boot.Size()
	mine, got := []int64{int64(10 * (boot.Rank() + 1))}, make([]int64, 1)
	_, err = world.Sendrecv(ctx,
		(world.Rank()+1)%n, 7, ucpgroup.Bytes(mine),
		ucpgroup.AnySource, 7, ucpgroup.Bytes(got))
	if err != nil {
		return err
	}
	if err := ucpgroup.Allreduce(ctx, world, nil, got, ucpgroup.Sum[int64]); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Println("the sum is", got[0])
	}
	return group.Close(ctx) // when all ranks are here
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
