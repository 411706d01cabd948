// Package bootstrap has workers find each other over a socket: one side listens, the other
// dials, and they swap what connects them. It knows sockets and messages; what a worker
// makes of them is package ucp's.
//
//	dialer                                     listener
//	connect ---------------------------------> accept
//	user allowed? (unix sockets)               user allowed? (unix sockets)
//	TLS (tcp, if it is demanded) <-----------> TLS: both certificates are verified
//	HELLO  worker address, private data -----> queue; the worker decides
//	       <---------------------------------- ACCEPT  worker address, name of the EP,
//	                                             private data, keys by name
//	                                         or REJECT  why, private data
//	...the two EPs connect over their transports...
//	       <---------------------------------- DONE  the listener knows of the peer
//	close  ----------------------------------> a dialer that leaves before that is forgotten
//
// docs/wire.md, "Bootstrap", has the messages.
//
// # Untrusted dialers
//
// Anybody who reaches the socket can connect to it. A listener reads the HELLOs of at most
// Config.MaxHandshakes connections, at most Config.MaxPerSource of one source, each with two goroutines and
// as many bytes as a HELLO has, MaxHelloLen. Others wait in the lobby, with a goroutine and 16 bytes each
// (lobby.go), where data connections are told from dialers by their first bytes; the lobby is limited too. A
// connection that keeps the listener waiting for 1/50 of Config.HelloTimeout can be evicted for
// them: place.go has the order. TLS and the HELLO must be complete within Config.HelloTimeout. A
// connection that begins with another protocol is closed at once.
package bootstrap
