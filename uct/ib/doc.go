// Package ib is the memory domain of InfiniBand and RoCE devices. It opens a verbs device,
// registers and allocates memory, packs remote keys, and opens transports.
//
//	comp := ib.New(softhca.Devices, rc.Transport(rc.Config{}), ud.Transport(ud.Config{}))
//
// The transports (packages rc, ud, xrc and dv) do not import each other; package uct/all composes
// them. This package contains what they share: settings, the queues of a category of endpoints, XRC domains, and the
// mapping of work completion statuses.
//
// An open MD runs one goroutine, which waits for asynchronous events of the device and passes them
// to the ifaces. It ends in MD.Close.
package ib
