package ucs

import "sync/atomic"

// Watch tells, by two loads and without a call, that polling a queue would find
// nothing. The queue's owner reads it; the queue keeps Quiet up to date when it is
// polled, and sets it to a value that Word never has when it wants to be polled
// whatever Word says.
type Watch struct {
	// Word changes when something arrives. Written by a device or another process.
	Word *uint32
	// Quiet is what Word holds as long as nothing has arrived.
	Quiet uint32
	// Attention is not 0 when the device must be driven; it may be driven by
	// polling any of its queues.
	Attention *uint32
}

// Idle reports whether polling would find nothing.
func (w *Watch) Idle() bool {
	return atomic.LoadUint32(w.Word) == w.Quiet && atomic.LoadUint32(w.Attention) == 0
}
