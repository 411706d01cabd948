package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucp/ucpgroup"
)

func Example() {
	for _, n := range []int{1, 3, 4} {
		var ranks sync.WaitGroup
		for _, boot := range ucpgroup.InProcess(n) {
			ranks.Go(func() { check(run(context.Background(), boot, func(line string) { fmt.Println(line) })) })
		}
		ranks.Wait()
	}
	// Output:
	// 1 ranks: 49.99 degrees on average after 1709 steps
	// 3 ranks: 49.99 degrees on average after 1709 steps
	// 4 ranks: 49.99 degrees on average after 1709 steps
}
