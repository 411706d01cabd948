package ucp

import (
	"net/netip"

	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/uct"
)

// Identity identifies the peer of a socket: over unix sockets the process and its
// user, as the kernel reports them; over tcp with TLS the name in its certificate; over tcp
// without TLS only an address, which proves nothing.
type Identity struct {
	Network  string         // "tcp" or "unix"
	Addr     netip.AddrPort // tcp: the address of the peer
	Name     string         // tcp with TLS: the first URI, DNS name or IP address in its certificate, or else the common name
	PID      int            // unix: the process; 0 if it is outside of this process's PID namespace
	UID, GID uint32         // unix: its effective user and group
}

// String returns the identity for logs: "process 12 of user 1000", or a name and an address.
func (i Identity) String() string { return bootstrap.Identity(i).String() }

// PeerIdentity returns the identity of the peer that the socket of [Worker.Dial] or [Worker.Listen] has shown
// when the EP was made. For an EP of [Worker.NewEP] the identity is not known, and Network is empty.
func (e *EP) PeerIdentity() Identity {
	if e.identity == nil {
		return Identity{}
	}
	return *e.identity
}

// peerIdentity returns the identity of the peer for transports.
func (e *EP) peerIdentity() uct.PeerIdentity {
	id := e.PeerIdentity()
	return uct.PeerIdentity{Name: id.Name, Addr: id.Addr.Addr()}
}

// SamePeer reports whether e and other, an EP of the same worker, are connections to one peer: to
// workers whose addresses have the same public key. A peer proves that it has the private key
// before its EP connects. [ActiveMessage.From] may be another EP than the one of [Worker.NewEP],
// as a peer may have several connections.
func (e *EP) SamePeer(other *EP) bool { return e.peer.Addr.Key == other.peer.Addr.Key }
