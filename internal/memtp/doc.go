// Package memtp is a reference transport between ifaces of one process. It implements the
// whole contract of package uct in simple Go code. The tests of the conformance suite and of
// upper layers use it.
//
// The code is simple rather than fast: one lock of the [World] protects all state that two
// ifaces share.
//
//	EP      ring of TxDepth operations; Progress of the owner executes them in
//	        order: a copy into a receive buffer of the target, or a copy to or
//	        from a region. Only Progress executes operations.
//	Iface   RxDepth receive buffers; a message waits while its target has no free one
//	World   tables of ifaces, endpoints and regions, by id
package memtp
