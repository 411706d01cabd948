// Package ucxtcp is UCX's transport over TCP ("tcp"). An Iface exchanges active messages with
// processes that use UCX 1.12 or later, or this package. The upper layer (package ucp/ucxpeer)
// implements UCX's protocols; ucp.NewContext does not use this package.
//
// UCX's protocol has no authentication and no encryption: use it only in trusted networks. By
// default an Iface uses the loopback device, which other hosts cannot reach. Everything that a peer
// sends is checked, and a peer cannot access memory: UCX executes a put with data at any address,
// but here it fails the connection. Connections that no EP of this side names have limits
// (accept.go).
//
// # Connections
//
// Each EP has its own connection, which also carries the messages of an EP of the peer in the other
// direction (manager.go). There are two types of connection:
//
//   - To an iface: NewEP with the addresses of the peer's device and iface. The n-th EP to a peer
//     and the n-th EP of that peer to this iface share a connection, whichever side dials. The EP
//     can send after the peer has acknowledged the connection request.
//   - To an EP: NewEP without addresses, and then Connect on both sides with the addresses of the
//     peer's device and EP. The side with the lower address dials.
//
// A peer to which no EP exists can send messages too. Their handler gets the connection from
// Iface.Source.
//
// # Messages
//
// Handlers get views of the receive buffer, which are valid until they return. A handler that
// cannot accept more messages of a peer calls Conn.Hold. The connection is then not read until
// Conn.Resume, so TCP flow control stops the peer, and at most RX_BUF bytes are buffered here.
//
// Flush sends an empty put, which the peer acknowledges when it has handled all earlier messages.
//
// docs/wire.md has the frames. All values are little-endian; peers on big-endian machines are not
// supported.
package ucxtcp
