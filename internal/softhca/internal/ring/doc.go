// Package ring transfers packets in one direction between two processes, with one producer and one
// consumer at a time. Records are contiguous: a 64-byte header and the payload,
// rounded up to 64 bytes; a record that does not fit before the end of the ring
// is placed at the beginning, after a filler.
//
//	Control   head (consumer)   tail (producer)   waiting (producer is blocked)
//	data      Len bytes
//
// The consumer does not trust the producer: see [Consumer].
package ring
