package tcp

import "github.com/gucx/gucx/internal/keypair"

// helloNumbers contains the sequence numbers of the last HELLOs of peers that have proven that they
// have the token. It detects replays of recorded HELLOs. With TLS the channel binding in the proof
// does that, because the proof is valid in one session only. The zero value is empty.
type helloNumbers struct {
	recent, older map[helloSource]uint64
}

// helloSource identifies a sender of HELLOs with ascending numbers.
type helloSource struct {
	key  keypair.PublicKey
	rail uint32
}

// maxHelloSources is the number of sources that are remembered at least; they need 4 MiB. A source
// can be evicted after maxHelloSources other sources have sent HELLOs.
const maxHelloSources = 32 << 10

// accept records the number of a HELLO. It reports false for a replay: the source has sent this
// number or a higher one before. It ignores rails with an invalid index, whose HELLO is refused
// later.
func (n *helloNumbers) accept(key keypair.PublicKey, rail uint32, number uint64) bool {
	if rail >= maxPerPeer {
		return true
	}
	s := helloSource{key, rail}
	last := max(n.recent[s], n.older[s])
	if number <= last {
		return false
	}
	if n.recent == nil || len(n.recent) >= maxHelloSources {
		n.recent, n.older = map[helloSource]uint64{}, n.recent
	}
	n.recent[s] = number
	return true
}
