// Package conn has the parts of a worker's connections that are neither lanes nor operations:
// the peers that the worker knows, the names by which messages find a connection, the carrier
// of the handshake, and bounds for what untrusted peers may ask. It knows neither endpoints
// nor requests of package ucp.
//
// Everything belongs to the goroutine that owns the worker.
package conn

// Carrier takes the handshake messages of one connection to the peer. It keeps their order
// while it works. A new one, and one that is closed, costs nothing: the first message has
// it open what it needs.
type Carrier interface {
	// Send takes a message, of which it keeps the slice. It leaves now or later. repeat
	// says that it repeats what may have arrived: it is dropped while others wait.
	Send(msg []byte, repeat bool)
	// Err is why what was sent may not arrive; nil while all is well. The carrier asks
	// for attention when that changes, as when Settle has something to do.
	Err() error
	// Recover goes on in another way after Err. What did not leave goes that way; what
	// did is to be repeated. It returns false with all reasons if there is none, or if the
	// reason says that the peer is gone; disconnecting has it try in that case, too, as the peer may
	// only have refused this way.
	Recover(disconnecting bool) (ok bool, why error)
	// Posted reports that every message is on its way.
	Posted() bool
	// Idle reports that all messages have arrived, as far as that is known, and that the
	// carrier holds nothing.
	Idle() bool
	// Settle goes on with what has not left. quiet says that no message will follow soon:
	// once all have arrived the carrier gives up what it holds. done says that it need
	// not be called again before it asks for attention.
	Settle(quiet bool) (done bool)
	// Close drops what has not left and gives up what the carrier holds. It may be used
	// again.
	Close()
}
