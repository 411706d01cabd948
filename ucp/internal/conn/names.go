package conn

// Names finds the connection that a message is about without naming it. The zero E stands
// for none.
//
// Both sides number the connections between them, and those of the same number are one. So a
// number is not given again as long as the peer may have a connection under it: that of a
// side which has failed stays until its user closes it. Numbers are remembered for the peers
// that have a connection here, and for the latest maxGone of the others. A peer that comes back
// later begins anew with number 0. If it has not forgotten, connections of the two sides do not
// find each other by number, and each side has one of its own.
type Names[E comparable] struct {
	next   map[uint64]numbered // by peer
	gone   []departure         // peers without a connection, a ring
	oldest int                 // in gone, once that is full
	serial uint64              // of departures
	bySeq  map[seqName]E
	byPeer map[peerName]E
}

// maxGone is how many peers without a connection have their numbers remembered: 32 KiB.
const maxGone = 1024

// numbered is what is known of the connections to a peer.
type numbered struct {
	next uint32 // number
	held uint32 // connections that there are
	made uint32 // of these, connections that the peer has made
	gone uint64 // serial number of the latest departure

	granted, all int64 // credit of these connections, in bytes; see Grant
}

// departure is that a peer's last connection has gone.
type departure struct{ uuid, serial uint64 }

// seqName names a connection by the peer and the number it was made under.
type seqName struct {
	uuid uint64
	seq  uint32
}

// peerName names a connection by the peer's own name for it.
type peerName struct{ uuid, ep uint64 }

// Init is called once, before anything else.
func (n *Names[E]) Init() {
	n.next, n.bySeq, n.byPeer = map[uint64]numbered{}, map[seqName]E{}, map[peerName]E{}
}

// Take numbers the next connection to a peer.
func (n *Names[E]) Take(uuid uint64) uint32 {
	p := n.next[uuid]
	p.next++
	n.next[uuid] = p
	return p.next - 1
}

// Hold counts a connection to a peer.
func (n *Names[E]) Hold(uuid uint64) {
	p := n.next[uuid]
	p.held++
	n.next[uuid] = p
}

// CountMade adds d to the connections that a peer has made. Each is counted after Hold and before Drop.
func (n *Names[E]) CountMade(uuid uint64, d int) {
	p := n.next[uuid]
	p.made += uint32(d)
	n.next[uuid] = p
}

// Made is how many connections a peer has made.
func (n *Names[E]) Made(uuid uint64) int { return int(n.next[uuid].made) }

// Grant adds bytes to the credit that the connections to a peer have beyond their first windows, and to that beyond
// the least ones, with reserves. It is called after Hold and before Drop.
func (n *Names[E]) Grant(uuid uint64, beyondFirst, all int64) {
	p := n.next[uuid]
	p.granted += beyondFirst
	p.all += all
	n.next[uuid] = p
}

// Granted are the sums of what Grant has added for a peer, in bytes.
func (n *Names[E]) Granted(uuid uint64) (beyondFirst, all int64) {
	p := n.next[uuid]
	return p.granted, p.all
}

// Drop is called when a connection that was counted has gone.
func (n *Names[E]) Drop(uuid uint64) {
	p := n.next[uuid]
	if p.held--; p.held > 0 {
		n.next[uuid] = p
		return
	}
	if p.next == 0 { // there is nothing to remember
		delete(n.next, uuid)
		return
	}
	n.serial++
	p.gone = n.serial
	n.next[uuid] = p
	n.depart(departure{uuid, p.gone})
}

// depart enters a departure, in the place of the oldest where there are too many. The peer of
// that is forgotten, unless it has come back since.
func (n *Names[E]) depart(d departure) {
	if len(n.gone) < maxGone {
		n.gone = append(n.gone, d)
		return
	}
	old := n.gone[n.oldest]
	n.gone[n.oldest] = d
	n.oldest = (n.oldest + 1) % maxGone
	if p := n.next[old.uuid]; p.held == 0 && p.gone == old.serial {
		delete(n.next, old.uuid)
	}
}

// Next is the connection that the peer has made under the number that Take would give.
func (n *Names[E]) Next(uuid uint64) E { return n.bySeq[seqName{uuid, n.next[uuid].next}] }

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
