package tcp

import "github.com/gucx/gucx/internal/keypair"

// helloNumbers are the numbers of the last HELLOs of peers that have proven that they have the token.
// They tell a HELLO that a process has recorded and sends again. With TLS the proof does that: it is valid in
// one session only. The zero value has none.
type helloNumbers struct {
	recent, older map[helloSource]uint64
}

// helloSource is a source of HELLOs that come in order.
type helloSource struct {
	key  keypair.PublicKey
	rail uint32
}

// maxHelloSources is how many sources are known at least: 4 MiB. A source of which maxHelloSources others have
// sent HELLOs since its last one may be forgotten.
const maxHelloSources = 32 << 10

// take notes the number of a HELLO. It reports false if the source has sent this one or a later one before. A
// rail that no iface has is not noted: its HELLO is refused in any case.
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
