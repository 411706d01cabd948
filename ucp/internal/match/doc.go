// Package match pairs receives with messages by tag. It is pure: it moves no bytes and
// knows no transport.
//
// A [Table] has two sides: receives that expect a message, and messages that came
// unexpected. A message fits a receive if their tags agree in the bits of the receive's mask.
// It takes the earliest posted receive that it fits; a receive takes the earliest message
// that fits. With messages of a sender given in their order this is the order that MPI asks for.
//
//	order      r1 <-> r2 <-> r3 <-> ... <-> rn       all, the earliest first
//	              first few  |  indexed up to here
//	index      for each mask in use: hash of (tag & mask) -> those with that key, in order
//
// Each side is a list in order. A search looks at the first few of it, which is all there is
// to do while queues are short or are drained in the order in which they grew: no hashing.
// Only a search that goes further puts what is not yet indexed into an index, and looks there.
// Every entry is put into an index at most once, so that a search takes a constant number of
// steps on average, with any number of entries on either side and with wildcards among them.
//
// A receive is in one index, that of its own mask; a message that arrives looks in the index of
// each mask in use and takes the earliest that it finds. A message is in an index for each mask
// that receives have searched with. The number of masks with an index is bounded, see
// [ReceiveMasks] and [MessageMasks]; what goes beyond is searched one by one, in order. The mask
// 0 needs none for messages: the first fits.
//
// The links are in [Recv] and [Msg], which the caller embeds in its own records. What the
// table allocates are hash tables, which grow with the entries, shrink when these are gone, and
// stay where they are up to a length of 1,024. Tags come from peers, so the hash is multiplication
// by a random number of each index: nobody can choose tags in advance that collide.
package match
