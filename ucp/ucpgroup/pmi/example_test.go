package pmi_test

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
)

// Two ranks exchange their addresses. After the fence each rank gets the values that the others have put. Here both
// ranks and the process manager are goroutines. Ranks of mpiexec, srun or Start call FromEnv instead, and ucpgroup.New
// does the rest.
func Example() {
	const size = 2
	var theirs, ours [size]net.Conn
	for i := range size {
		theirs[i], ours[i] = net.Pipe()
	}
	ended := make(chan error)
	go func() { ended <- pmi.NewServer(theirs[:]).Serve() }()

	var found [size]string
	var ranks sync.WaitGroup
	for i := range size {
		ranks.Go(func() {
			rank := must(pmi.NewClient(ours[i], i, size))
			check(rank.Put(context.Background(), "address", fmt.Append(nil, "socket of rank ", i)))
			check(rank.Fence(context.Background()))
			found[i] = string(must(rank.Get(context.Background(), 1-i, "address")))
			check(rank.Close())
		})
	}
	ranks.Wait()
	fmt.Println(<-ended)
	fmt.Println(found[0])
	fmt.Println(found[1])
	// Output:
	// <nil>
	// socket of rank 1
	// socket of rank 0
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
