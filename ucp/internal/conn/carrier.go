// Package conn has the parts of a worker's connections that are neither lanes nor operations:
// the peers that the worker knows, the ids by which messages find a connection, the carrier
// of the handshake, and limits for untrusted peers. It knows neither endpoints
// nor requests of package ucp.
//
// Everything belongs to the goroutine that owns the worker.
package conn

// Carrier sends the handshake messages of one connection to the peer, in order as long as no path
// fails. A new or closed carrier has no resources: the first message makes it open an
// endpoint.
type Carrier interface {
	// Send sends or queues a message. The slice belongs to the carrier. repeat
	// marks a retransmission, which is dropped while other messages wait.
	Send(msg []byte, repeat bool)
	// Err is the reason why messages may not arrive; nil if there is none. The carrier calls
	// Host.Attention when Err changes or Advance has work.
	Err() error
	// Recover continues over another path after Err. Queued messages use that path; the caller
	// must repeat messages that were sent. It returns false with all reasons if there is no other path, or if
	// the reason means that the peer is gone. With disconnecting it tries another path also in that
	// case, because the peer may only have rejected this path.
	Recover(disconnecting bool) (ok bool, why error)
	// Posted reports whether no message is queued.
	Posted() bool
	// Idle reports whether all messages have arrived, as far as known, and the
	// carrier has no endpoint open.
	Idle() bool
	// Advance sends queued messages. quiet means that no message will follow soon:
	// when all messages have arrived, the carrier closes its endpoint. done means that Advance need
	// not be called again before the next Host.Attention.
	Advance(quiet bool) (done bool)
	// Close drops queued messages and closes the endpoint. The carrier may be used
	// again.
	Close()
}
