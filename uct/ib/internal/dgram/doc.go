// Package dgram is the protocol that carries ordered, reliable messages over
// unreliable datagrams: the packet header, the connection requests, and the state
// machine of one connection. It is pure: no device, no memory, no clock. The
// transports feed it with arrivals and times and send what it says.
//
//	             first to send                 CREP, or the peer's CREQ
//	Idle ---------------------> Connecting -----------------------------> Connected
//	  \________________________________ the peer's CREQ __________________/
//
// # Numbers
//
// Data packets carry a 16-bit sequence number (PSN), counted from 0 in each
// direction of a connection, and every packet carries the PSN of the last data
// packet that its sender has taken in, in order. Control packets use no PSN. A probe is a
// data packet without a message: what asks an idle peer whether it lives.
//
//	   una          snd           next
//	----|------------|-------------|---------> PSN
//	    | in flight  |  to be sent |
//
// The sender keeps packets from una to next. It sends while fewer than its window
// are in flight; a timeout or a NAK moves snd back to una (go-back-N), a timeout
// halves the window, and each acknowledgement that advances una widens it by one.
//
// The receiver takes packets in order and drops the others: one that was there
// already is acknowledged again, one that is too early is answered with one NAK
// for each gap.
//
// Layouts are in docs/wire.md.
package dgram
