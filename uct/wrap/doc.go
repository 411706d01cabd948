// Package wrap puts layers around transports: to trace what they are asked, to delay
// what they do, to limit their rate, to let operations and endpoints fail as a plan says,
// or for a purpose of your own.
//
//	c := wrap.Component(usock.New(), wrap.Trace(log.Println), wrap.Delay(3))
//
// A layer is a [Hooks]: functions that change a domain, an iface or an EP when it is
// opened. What a hook changes is a struct. It embeds the object of the layer below, and its
// field Has has the optional abilities. A hook replaces the object by one that embeds it, or
// single abilities:
//
//	wrap.Hooks{EP: func(e *wrap.EP) {
//		e.EP = &countingFlushes{EP: e.EP}     // a method of uct.EP
//		e.Has.Put = &countingPuts{e.Has.Put} // a class of operations
//	}}
//
// What a layer does not touch goes straight to the transport. Layers do not know of one
// another; the first of a list is next to the transport. A wrapped transport keeps the
// contract of package uct if its layers do.
package wrap
