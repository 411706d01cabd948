// Package udcore implements the transports over unreliable datagrams: ordered, reliable active
// messages to any addressable iface over one QP. A Driver posts datagrams and polls completions.
//
//	Iface    one QP, one CQ, AHs and peers by address
//	  conn   one connection: protocol state, window, queued packets
//	  EP     the user's handle of a conn
//
// Nothing is sent until the first message of an EP, which sends a connection request. Messages that
// are posted before the reply wait in the window. A conn outlives its EP, because the peer may
// still send over it; a later EP to the same iface uses it again. It ends when one of the ifaces
// closes, the peer does not reply, or the device reports that no process uses the peer's port any
// more.
//
// Package dgram has the protocol, without verbs. This package passes arrivals and times to it, and
// sends packets as it decides. Packets are in bounce buffers (of zcopy packets the header only; the
// payload is in the user's memory) until they are acknowledged and the device has read them. So
// every packet can be retransmitted, and a completion means that the peer has the data.
//
// Data packets carry acknowledgements for the other direction. Without data, the first Progress
// that finds no completion sends an acknowledgement, or the end of a Progress if the peer requested
// one or many are due.
//
// One of tickPolls calls of Progress reads the clock, and only while an acknowledgement of a peer
// is outstanding. Lost packets are retransmitted by go-back-N, with a timeout that doubles.
package udcore
