// Package wrap puts layers around transports, which trace calls, delay progress, limit the
// rate, let operations and endpoints fail as a plan says, or have a purpose of your own.
//
//	c := wrap.Component(usock.New(), wrap.Trace(log.Println), wrap.Delay(3))
//
// A layer is a [Hooks]: functions that change a domain, an iface or an EP when it is
// opened. The hook gets a struct that embeds the object of the layer below; its
// field Has has the optional abilities. A hook replaces the object by one that embeds it, or
// replaces single abilities:
//
//	wrap.Hooks{EP: func(e *wrap.EP) {
//		e.EP = &countingFlushes{EP: e.EP}     // a method of uct.EP
//		e.Has.Put = &countingPuts{e.Has.Put} // a class of operations
//	}}
//
// Calls that a layer does not replace go straight to the transport. Layers are independent of one
// another; the first of a list is next to the transport. A wrapped transport meets the
// contract of package uct if its layers do.
package wrap
