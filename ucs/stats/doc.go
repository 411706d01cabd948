// Package stats has counters of single objects, in a tree of names that can be
// read while the objects work.
//
//	type epStats struct{ sends, noResource stats.Counter }
//
//	node := parent.Child("ep")
//	node.Add("sends", &ep.stats.sends)
//	node.Add("no_resource", &ep.stats.noResource)
//	…
//	ep.stats.sends.Inc() // the goroutine that owns ep; one add to memory
//
// A counter has one writer, the owner of the object, and costs it a plain add. Any
// goroutine may read: each value is one that the counter had, but values of one
// snapshot need not be of one moment.
//
// Names come out in a fixed order: counters as they were added, children by name.
// A Node has the method that expvar.Publish wants; this package does not import
// expvar, as that would add a handler to the program's HTTP server.
package stats
