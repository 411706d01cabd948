// Package ucxpeer lets a Go program exchange messages with programs that use UCX (C, C++, Python, MPI), by
// UCX's own protocols over its tcp transport. The other side is unmodified UCX.
//
//	w, _ := ucxpeer.NewWorker(ucxpeer.Config{Device: "eth0"})
//	ep, _ := w.NewEP(addressOfUCX, ucxpeer.EPConfig{}) // of ucp_worker_get_address
//	req, _ := ep.TagSend(7, []byte("hello"), nil)
//	err := req.Wait(ctx)
//
// A [Worker] is like one of package ucp: one goroutine at a time owns it, with its EPs, and calls Progress or a
// method that waits. An [EP] is a connection to one endpoint of a worker of UCX. They are not the types of package
// ucp, because UCX's protocols have no credit: only the transport limits the data that a peer sends before a receive is
// posted, when it stops reading from the socket (see Config.MaxBuffered).
//
// # Trusted networks only
//
// UCX's TCP has no authentication and no encryption. Any process that reaches the port of a worker can send it
// messages, and any process that reaches the port of a UCX process can write that process's memory. Use this package only
// on networks on which all hosts are trusted. This package reads and writes memory for a peer only if [Worker.MemMap] has
// registered it with the needed access. It never sends a virtual address to a peer, and it rejects
// puts of UCX's transport, which need no key.
//
// # What a peer sees
//
// The address of a worker lists one device with one tcp interface, without the capability of put. So UCX
// emulates put, get and atomics by active messages, and moves large messages by active messages.
package ucxpeer
