// Package memtp is a reference transport: the whole contract of package uct in
// plain Go, between ifaces of one process. It is what the conformance suite is
// tested on, and a transport for tests of upper layers.
//
// It is written to be checked by eye, not to be fast: one lock of the [World]
// guards everything that two ifaces share.
//
//	EP      ring of TxDepth operations; Progress of the owner executes them in
//	        order against the target: a copy into a receive buffer, or a copy to
//	        or from a region. Nothing happens before Progress.
//	Iface   RxDepth receive buffers; an operation whose target has none free waits
//	World   tables of ifaces, endpoints and regions, by id
package memtp
