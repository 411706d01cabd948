package conn

// Names finds the connection that a message is about without naming it. The zero E stands
// for none.
type Names[E comparable] struct {
	next   map[uint64]uint32 // connections made, by peer
	bySeq  map[seqName]E
	byPeer map[peerName]E
}

// seqName names a connection by the peer and the number it was made under.
type seqName struct {
	uuid uint64
	seq  uint32
}

// peerName names a connection by the peer's own name for it.
type peerName struct{ uuid, ep uint64 }

// Init is called once, before anything else.
func (n *Names[E]) Init() {
	n.next, n.bySeq, n.byPeer = map[uint64]uint32{}, map[seqName]E{}, map[peerName]E{}
}

// Take numbers the next connection to a peer.
func (n *Names[E]) Take(uuid uint64) uint32 {
	seq := n.next[uuid]
	n.next[uuid] = seq + 1
	return seq
}

// Next is the connection that the peer has made under the number that Take would give.
func (n *Names[E]) Next(uuid uint64) E { return n.bySeq[seqName{uuid, n.next[uuid]}] }

// At is the connection of a number.
func (n *Names[E]) At(uuid uint64, seq uint32) E { return n.bySeq[seqName{uuid, seq}] }

// Enter gives a number to a connection.
func (n *Names[E]) Enter(uuid uint64, seq uint32, e E) { n.bySeq[seqName{uuid, seq}] = e }

// Called is the connection that the peer calls ep.
func (n *Names[E]) Called(uuid, ep uint64) E { return n.byPeer[peerName{uuid, ep}] }

// Call notes what the peer calls a connection.
func (n *Names[E]) Call(uuid, ep uint64, e E) { n.byPeer[peerName{uuid, ep}] = e }

// Forget removes a connection with its number and the peer's name for it.
func (n *Names[E]) Forget(e E, uuid uint64, seq uint32, ep uint64) {
	if k := (seqName{uuid, seq}); n.bySeq[k] == e {
		delete(n.bySeq, k)
	}
	if k := (peerName{uuid, ep}); n.byPeer[k] == e {
		delete(n.byPeer, k)
	}
}

// Len is how many connections have a number, and how many a name of the peer.
func (n *Names[E]) Len() (numbered, called int) { return len(n.bySeq), len(n.byPeer) }
