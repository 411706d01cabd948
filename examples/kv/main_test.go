package main

import (
	"context"
	"os"

	"github.com/gucx/gucx/examples/kv/kvstore"
)

func Example() {
	_ = run(context.Background(), os.Stdout, kvstore.Config{}, "", nil)
	// Output: blue
}
