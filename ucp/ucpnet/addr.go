package ucpnet

import (
	"net"

	"github.com/gucx/gucx/ucp"
)

// Addr is the address of an end of a connection that was not made by Dial and Listen.
type Addr struct{}

// Network is "ucp".
func (Addr) Network() string { return "ucp" }

// String is "worker".
func (Addr) String() string { return "worker" }

// unnamed is the address of a dialer's unix socket, as package net has it.
func unnamed() net.Addr { return &net.UnixAddr{Name: "@", Net: "unix"} }

// peerAddr is the address of a dialer, or of a listener over tcp.
func peerAddr(id ucp.Identity) net.Addr {
	if id.Network == "unix" {
		return unnamed()
	}
	return net.TCPAddrFromAddrPort(id.Addr)
}

// dialedAddrs are the addresses of the ends of a socket to a listener.
func dialedAddrs(p *ucp.Peer, address string) (local, remote net.Addr) {
	if p.From.Network == "unix" {
		return unnamed(), &net.UnixAddr{Name: address, Net: "unix"}
	}
	return net.TCPAddrFromAddrPort(p.Local), peerAddr(p.From)
}
