// Package dgram is the protocol of ordered, reliable messages over unreliable datagrams: the packet
// header, the connection requests, and the state machine of one connection. It is pure: it uses no
// device, no memory and no clock. The transports pass arrivals and times to it and send packets as
// it decides.
//
//	             first send                    CREP, or the peer's CREQ
//	Idle ---------------------> Connecting -----------------------------> Connected
//	  \________________________________ the peer's CREQ __________________/
//
// # Sequence numbers
//
// Data packets have a 16-bit sequence number (PSN), which begins with 0 in each direction of a
// connection. Every packet contains the PSN of the last data packet that its sender has accepted in
// order. Control packets use no PSN of their own. A probe is a data packet without a message, which
// checks whether an idle peer is alive.
//
//	   una          snd           next
//	----|------------|-------------|---------> PSN
//	    | in flight  |  to be sent |
//
// The sender stores the packets from una to next. It sends while fewer packets than its window are
// in flight. After a timeout or a NAK it continues at una (go-back-N). A timeout halves the window,
// and each acknowledgement that advances una increases it by one.
//
// The receiver accepts packets in order and drops others. It acknowledges a duplicate again, and
// sends one NAK for each gap.
//
// docs/wire.md has the layouts.
package dgram
