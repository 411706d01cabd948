// Package stats has counters of objects, in a tree with names. Any goroutine can read the tree while the objects are in
// use.
//
//	type epStats struct{ sends, noResource stats.Counter }
//
//	node := parent.Child("ep")
//	node.Add("sends", &ep.stats.sends)
//	node.Add("no_resource", &ep.stats.noResource)
//	…
//	ep.stats.sends.Inc() // the goroutine that owns ep; one add to memory
//
// A counter has one writer, the owner of the object, for which counting is a plain add. Any goroutine may read. Each
// value in a snapshot is one that the counter had, but the values may be from different times.
//
// The order in a snapshot is fixed: counters in the order in which they were added, children by name. A Node implements
// expvar.Var. This package does not import expvar, because the import would add a handler to the program's HTTP server.
package stats
