package endpoint_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// A runtime with 16 threads opens endpoints of several categories, with one CQ for four threads, and prints the
// resources of the device that they use.
func Example() {
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	if err != nil {
		log.Fatal(err)
	}
	for _, category := range []endpoint.Category{endpoint.MPIEverywhere, endpoint.Dynamic, endpoint.Static} {
		plan := category.Plan(16)
		if plan.Context > 1 {
			plan = plan.WithCQ(4)
		}
		set, err := endpoint.Open(dev, 16, endpoint.Config{Plan: plan})
		if err != nil {
			log.Fatal(err)
		}
		e := &set.Endpoints[5] // for thread 5: connect its QPs, post to them, poll its CQ
		r, _ := set.Resources()
		fmt.Printf("%v: %d contexts, %d CQs, %d uUARs; thread 5 polls CQ %d with %d others\n",
			category, r.Contexts, r.CQs, r.UUARs, e.SharedBy.CQ, e.SharedBy.CQUsers-1)
		if err := set.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// MPI-everywhere: 16 contexts, 16 CQs, 256 uUARs; thread 5 polls CQ 5 with 0 others
	// Dynamic: 1 contexts, 4 CQs, 48 uUARs; thread 5 polls CQ 1 with 3 others
	// Static: 1 contexts, 4 CQs, 16 uUARs; thread 5 polls CQ 1 with 3 others
}
