// Package ucxtcp is UCX's transport over TCP ("tcp"): an Iface exchanges active messages with processes that
// use UCX itself, from release 1.12 on, or this package. The layer above provides UCX's protocols over it
// (package ucp/ucxpeer); ucp.NewContext does not use it.
//
// UCX's protocol has no authentication and no encryption. Use it in trusted networks only. By default an
// Iface is opened on the loopback device and nobody else can connect. What a peer sends is checked, and
// nothing that it names reaches memory: a put with data, which UCX executes at any address, breaks the
// connection. Limits hold for connections that no EP of this side names (accept.go).
//
// # Connections
//
// Each EP has a connection of its own, which serves an EP of the peer in the other direction
// (manager.go). There are two ways to connect:
//
//   - to an iface: NewEP with the addresses of the peer's device and iface. The n-th EP that names a peer
//     shares its connection with the n-th EP of the peer that names this iface, whichever side connects.
//     The EP can send once the peer has acknowledged the connection request.
//   - to an EP: NewEP without addresses, and Connect with those of the peer's device and EP on both
//     sides. The side with the lower address connects.
//
// A peer that has no EP here can still send messages: their handler finds the connection by Iface.Source.
//
// # Messages
//
// Handlers get views over the receive buffer, valid until they return. A handler that has no room for more
// messages of a peer calls Conn.Hold: the connection is not read until Conn.Resume, so that the peer is held
// back by TCP, and at most RX_BUF bytes of it wait here.
//
// Flush sends an empty put, which the peer acknowledges when it has handled everything before.
//
// The frames are in docs/wire.md. All values are little endian: peers on big-endian machines are not supported.
package ucxtcp
