package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gucx/gucx/examples/kv/kvstore"
)

func Example() {
	if err := run(context.Background(), os.Stdout, kvstore.Config{}, "", nil); err != nil {
		fmt.Println(err)
	}
	// Output: blue
}
