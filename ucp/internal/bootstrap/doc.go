// Package bootstrap lets workers exchange their addresses over a socket: one side listens, the other
// dials. The package handles sockets and messages. Package ucp connects the workers by the addresses in the messages.
//
//	dialer                                     listener
//	connect ---------------------------------> accept
//	user allowed? (unix sockets)               user allowed? (unix sockets)
//	TLS (tcp, if it is required) <-----------> TLS: both certificates are verified
//	HELLO  worker address, private data -----> queue; the worker accepts or rejects
//	       <---------------------------------- ACCEPT  worker address, id of the EP,
//	                                             private data, keys by name
//	                                         or REJECT  reason, private data
//	...the two EPs connect over their transports...
//	       <---------------------------------- DONE  the listener's EP is connected
//	close  ----------------------------------> if the dialer closes before DONE, the listener drops it
//
// docs/wire.md, "Bootstrap", has the messages.
//
// # Untrusted dialers
//
// Any process that reaches the socket can connect to it. A listener reads the HELLOs of at most
// Config.MaxHandshakes connections at a time, at most Config.MaxPerSource of one source, each with two goroutines and
// MaxHelloLen bytes. Other connections wait in the lobby (lobby.go), with a goroutine and 16 bytes each,
// where their first bytes distinguish data connections from dialers; the lobby is limited too. A
// connection for which the listener has waited 1/50 of Config.HelloTimeout can be evicted for
// others: place.go has the order. TLS and the HELLO must be complete within Config.HelloTimeout. A
// connection that begins with another protocol is closed at once.
package bootstrap
