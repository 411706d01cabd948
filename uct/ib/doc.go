// Package ib is the memory domain of InfiniBand and RoCE devices: it opens a
// verbs device, registers and allocates memory, packs remote keys and device
// addresses, and opens the transports that it was given.
//
//	comp := ib.New(softhca.Devices, rc.Transport(rc.Config{}), ud.Transport(ud.Config{}))
//
// The transports (packages rc, ud, xrc and dv) do not know each other; package uct/all
// composes them. What they share is here: address handles, registered buffer
// pools, the wake-up descriptor, and the one mapping of work-completion statuses.
//
// An open MD runs one goroutine, which waits for asynchronous events of the
// device and hands them to the ifaces; it ends in MD.Close.
package ib
