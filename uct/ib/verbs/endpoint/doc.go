// Package endpoint creates communication endpoints for the threads of a program. An
// [Endpoint] is the set of verbs objects that one thread posts to and polls. Threads that
// share more objects use fewer resources of the NIC and have a lower message rate
// ("Scalable Communication Endpoints for MPI+Threads Applications", Zambre,
// Chandramowlishwaran, Balaji, 2018).
//
// A [Category] is one of the six categories of that study. For 16 threads, with the
// static policy for UAR pages (16 micro-UARs, uUARs, in each context), they allocate:
//
//	               contexts  thread domains  QPs  CQs  UAR pages  uUARs
//	MPI-everywhere    16           0          16   16     128      256
//	2xDynamic          1          32          32   32      40       80
//	Dynamic            1          16          16   16      24       48
//	SharedDynamic      1          16          16   16      16       32
//	Static             1           0          16   16       8       16
//	MPI+threads        1           0           1    1       8       16
//
// Each category has a [Plan], which says how many threads share each object. A program
// may also use a plan of its own.
//
//	set, err := endpoint.Open(dev, 16, endpoint.Config{Plan: endpoint.Dynamic.Plan(16)})
//	for i := range set.Endpoints {
//		go run(&set.Endpoints[i])
//	}
//
// Open and Close block. The caller must not use a Set in several goroutines at a time.
// The objects of an Endpoint follow the rules of package verbs: several goroutines may
// use an object that is shared according to SharedBy; only one goroutine at a time may
// use another object.
package endpoint
