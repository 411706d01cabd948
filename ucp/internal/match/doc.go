// Package match pairs receives with messages by tag. It copies no data and uses no transport.
//
// A [Table] has two sides: posted receives, and unexpected messages. A message matches a receive if their
// tags are equal in the bits of the receive's mask. An arriving message is matched with the earliest posted receive that
// matches it, and a new receive with the earliest unexpected message that matches it. If the messages of a sender arrive in
// order, this is the order that MPI requires.
//
//	order      r1 <-> r2 <-> r3 <-> ... <-> rn       all, the earliest first
//	              first few  |  indexed up to here
//	index      for each mask in use: hash of (tag & mask) -> those with that key, in order
//
// Each side is a list in order. A search compares the first few entries, and hashes nothing. That
// is enough while queues are short, or are drained in the order in which they grew.
// A longer search adds the entries that are not indexed yet to an index, and looks there.
// Every entry is added to an index at most once, so a search takes a constant number of
// steps on average, with any number of entries on either side, wildcards included.
//
// A receive is in one index, that of its own mask. An arriving message looks in the index of
// each mask in use and takes the earliest match. A message is in an index for each mask
// that receives have searched with. The number of indexes is limited, see
// [ReceiveMasks] and [MessageMasks]; entries with further masks are searched one by one, in order. Messages need
// no index for mask 0: the first one matches.
//
// The links are in [Recv] and [Msg], which the caller embeds in its own records. The
// table allocates hash tables. They grow with the entries and shrink when entries are removed, but not
// below a length of 1,024. Tags come from peers, so the hash multiplies by random numbers of each index: a peer
// cannot choose tags that collide.
package match
