// Package ring carries packets one way between two processes: one producer at a time,
// one consumer at a time. Records are contiguous: a 64-byte header and the payload,
// rounded up to 64 bytes; a record that does not fit before the end of the ring
// starts again at the beginning, after a filler.
//
//	Control   head (consumer)   tail (producer)   waiting (producer is blocked)
//	data      Len bytes
//
// The two do not trust each other: see [Consumer].
package ring
