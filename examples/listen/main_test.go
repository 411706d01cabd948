package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	address := fmt.Sprintf("@gucx-example-listen-%d", os.Getpid())
	said := make(chan string)
	var serving sync.WaitGroup
	serving.Go(func() { check(serve(ctx, address, func(line string) { said <- line })) })
	fmt.Println(<-said)

	written := make(chan error, 1)
	go func() { written <- write(ctx, address, "ann", "good morning") }()
	fmt.Println(<-said)
	fmt.Println(<-said)
	check(<-written)
	fmt.Println(write(ctx, address, "", "who am I?"))
	go func() { written <- write(ctx, address, "bob", strings.Repeat("long ", 20)) }()
	fmt.Println(<-said)
	fmt.Println(<-said)
	fmt.Println(strings.Contains((<-written).Error(), "the key opens 64 bytes"))

	stop()
	serving.Wait()
	// Output:
	// listening
	// ann comes
	// ann has written: "good morning"
	// the server says: a name, please
	// bob comes
	// bob has written: ""
	// true
}
