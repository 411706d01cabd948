// Package endpoint makes communication endpoints for the threads of a program:
// what one thread posts to and polls. How much they share decides what they cost in
// resources of the NIC, and what sharing costs in speed ("Scalable Communication
// Endpoints for MPI+Threads Applications", Zambre, Chandramowlishwaran, Balaji,
// 2018).
//
// A [Category] is one of the six ways to share of that study. For 16 threads, with
// the static policy for UAR pages (16 micro-UARs, uUARs, in each context):
//
//	               contexts  thread domains  QPs  CQs  UAR pages  uUARs
//	MPI-everywhere    16           0          16   16     128      256
//	2xDynamic          1          32          32   32      40       80
//	Dynamic            1          16          16   16      24       48
//	SharedDynamic      1          16          16   16      16       32
//	Static             1           0          16   16       8       16
//	MPI+threads        1           0           1    1       8       16
//
// A category is a [Plan], and other plans are other ways to share.
//
//	set, err := endpoint.Open(dev, 16, endpoint.Config{Plan: endpoint.Dynamic.Plan(16)})
//	for i := range set.Endpoints {
//		go run(&set.Endpoints[i])
//	}
//
// Open and Close block; a Set is made and closed by one goroutine at a time. The
// objects of an Endpoint follow the rules of package verbs: those that SharedBy
// says are shared may be used by all that share them, the others by one goroutine
// at a time.
package endpoint
