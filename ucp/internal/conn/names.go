package conn

// Names finds the connection of a message that does not contain this side's id of the connection. The zero
// E means none.
//
// Both sides number the connections between them, and the same number means the same connection. So a
// number is not reused while the peer may have a connection with it: a failed connection
// exists until its user closes it. Names stores the next number of the peers
// that have a connection here, and of the last maxGone other peers. For a peer that returns
// later, numbers start at 0 again. If the peer has stored its number, the numbers of the two sides
// differ, and each side gets a connection of its own.
type Names[E comparable] struct {
	next   map[uint64]numbered // by peer
	gone   []departure         // peers without a connection, a ring
	oldest int                 // index in gone, when that is full
	serial uint64              // of departures
	bySeq  map[seqName]E
	byPeer map[peerName]E
}

// maxGone limits the peers without a connection whose numbers are stored: 32 KiB.
const maxGone = 1024

// numbered has the counts of the connections to a peer.
type numbered struct {
	next uint32 // number of the next connection
	held uint32 // connections
	made uint32 // number of connections in held that the peer has made
	gone uint64 // serial number of the latest departure

	granted, all int64 // credit of these connections, in bytes; see Grant
}

// departure records that the last connection to a peer was dropped.
type departure struct{ uuid, serial uint64 }

// seqName identifies a connection by its peer and number.
type seqName struct {
	uuid uint64
	seq  uint32
}

// peerName identifies a connection by its peer and the peer's id.
type peerName struct{ uuid, ep uint64 }

// Init must be called once, before any other method.
func (n *Names[E]) Init() {
	n.next, n.bySeq, n.byPeer = map[uint64]numbered{}, map[seqName]E{}, map[peerName]E{}
}

// Take returns the number of the next connection to a peer.
func (n *Names[E]) Take(uuid uint64) uint32 {
	p := n.next[uuid]
	p.next++
	n.next[uuid] = p
	return p.next - 1
}

// Hold counts a connection to a peer. Each Hold needs a Drop.
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

// Made is the number of connections that a peer has made.
func (n *Names[E]) Made(uuid uint64) int { return int(n.next[uuid].made) }

// Grant adds to two sums over the connections to a peer, in bytes: beyondFirst to the sum of the parts of their windows
// that exceed the first window, and all to the sum of the parts that exceed the least window, reserves included. It must
// be called after Hold and before Drop.
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

// Drop uncounts a connection.
func (n *Names[E]) Drop(uuid uint64) {
	p := n.next[uuid]
	if p.held--; p.held > 0 {
		n.next[uuid] = p
		return
	}
	if p.next == 0 { // as for a peer that is not stored
		delete(n.next, uuid)
		return
	}
	n.serial++
	p.gone = n.serial
	n.next[uuid] = p
	n.depart(departure{uuid, p.gone})
}

// depart adds a departure, in the place of the oldest at the limit. It removes the peer of
// the oldest, unless that has a connection again.
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

// NextByPeer returns the connection that the peer has made with the number that Take would return.
func (n *Names[E]) NextByPeer(uuid uint64) E { return n.bySeq[seqName{uuid, n.next[uuid].next}] }

// At is the connection with a number.
func (n *Names[E]) At(uuid uint64, seq uint32) E { return n.bySeq[seqName{uuid, seq}] }

// Enter adds a connection with its number.
func (n *Names[E]) Enter(uuid uint64, seq uint32, e E) { n.bySeq[seqName{uuid, seq}] = e }

// ByPeerID returns the connection to which the peer has given the id ep.
func (n *Names[E]) ByPeerID(uuid, ep uint64) E { return n.byPeer[peerName{uuid, ep}] }

// SetPeerID stores the id that the peer has given to a connection.
func (n *Names[E]) SetPeerID(uuid, ep uint64, e E) { n.byPeer[peerName{uuid, ep}] = e }

// Forget removes a connection with its number and the peer's id.
func (n *Names[E]) Forget(e E, uuid uint64, seq uint32, ep uint64) {
	if k := (seqName{uuid, seq}); n.bySeq[k] == e {
		delete(n.bySeq, k)
	}
	if k := (peerName{uuid, ep}); n.byPeer[k] == e {
		delete(n.byPeer, k)
	}
}

// Len is the number of connections with a number, and with an id of the peer.
func (n *Names[E]) Len() (numbered, called int) { return len(n.bySeq), len(n.byPeer) }
