// Package udcore is what the transports over unreliable datagrams share: active
// messages to any iface that can be addressed, ordered and reliable, over one QP. How
// a datagram reaches the queue and how completions are read, a Driver adds.
//
//	Iface    one QP, one CQ, AHs and peers by address
//	  conn   one connection: protocol state, window, queued packets
//	  EP     the user's handle of a conn
//
// Nothing is sent until the first message of an EP asks its peer to connect; what
// is posted until the reply comes waits in the window. A conn outlives its EP: the
// peer may still send over it, and an EP made later to the same iface takes it up
// again. It ends when either iface closes, the peer does not answer, or the device says
// that nobody is at the peer's port any more.
//
// The protocol is in package dgram, without verbs; this package gives it arrivals
// and time, and sends what it says. Packets are in bounce buffers (zero-copy ones:
// header there, payload in the user's memory) until they are acknowledged and the
// device has read them, so every packet can be sent again, and completions mean
// that the peer has the data.
//
// Acknowledgements travel with data that goes the other way. Without, they are
// sent by the first Progress that finds nothing, or at the end of a Progress if the
// peer asked or many are due.
//
// The clock is read by one Progress in tickPolls, and only while some peer has to send an
// acknowledgement. Loss recovery is go-back-N with a fixed timeout that doubles.
package udcore
