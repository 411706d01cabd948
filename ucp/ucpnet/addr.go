package ucpnet

import (
	"net"

	"github.com/gucx/gucx/ucp"
)

// Addr is the address of both ends of a connection from NewConn.
type Addr struct{}

// Network returns "ucp".
func (Addr) Network() string { return "ucp" }

// String returns "worker".
func (Addr) String() string { return "worker" }

// unnamedAddr returns the address of a dialer's unix socket, as package net does.
func unnamedAddr() net.Addr { return &net.UnixAddr{Name: "@", Net: "unix"} }

// peerAddr returns the address of a dialer, or of a listener over tcp.
func peerAddr(id ucp.Identity) net.Addr {
	if id.Network == "unix" {
		return unnamedAddr()
	}
	return net.TCPAddrFromAddrPort(id.Addr)
}

// dialedAddrs returns the addresses of both ends of the socket that Dial has connected to address.
func dialedAddrs(p *ucp.Peer, address string) (local, remote net.Addr) {
	if p.From.Network == "unix" {
		return unnamedAddr(), &net.UnixAddr{Name: address, Net: "unix"}
	}
	return net.TCPAddrFromAddrPort(p.Local), peerAddr(p.From)
}
