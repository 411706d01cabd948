package ucs

import "sync/atomic"

// Watch lets the owner of a queue find out, by two loads and without a call, that a poll of the queue would find
// nothing. Each poll of the queue updates Quiet. If the owner must poll the queue regardless of Word, the poll sets
// Quiet to a value that Word never has.
type Watch struct {
	// Word changes when something arrives. A device or another process writes it.
	Word *uint32
	// Quiet is the value of Word as long as nothing has arrived.
	Quiet uint32
	// Attention is not 0 while the device has work that only a poll does. A poll of any of its queues does the work.
	Attention *uint32
}

// Idle reports whether polling would find nothing.
func (w *Watch) Idle() bool {
	return atomic.LoadUint32(w.Word) == w.Quiet && atomic.LoadUint32(w.Attention) == 0
}
