package ucttest_test

import (
	"fmt"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/uct/ucttest"
)

// A harness needs a function that opens a memory domain, the name of the
// transport, and how queue depths are configured. In a test, give it to Test;
// here two checks run without package testing.
func Example() {
	world := memtp.NewWorld()
	harness := ucttest.Harness{
		OpenMD:    world.OpenMD,
		Transport: memtp.Transport,
		Config: func(o ucttest.Options) any {
			return &memtp.Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth}
		},
		Budget: 1 << 12,
	}
	for _, v := range ucttest.Results(harness, "am/sizes", "am/both-ways") {
		fmt.Println(v.Check, "failed:", v.Failed)
	}
	// Output:
	// am/sizes failed: false
	// am/both-ways failed: false
}
