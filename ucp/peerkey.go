package ucp

import "bytes"

// peerKeys caches unpacked keys that a peer has sent for the data of messages. A sender that uses the same memory
// again sends the same key. A key contains a random number of its region, so keys of other memory
// differ.
type peerKeys [maxPeerKeys]peerKey

// peerKey is a cached key. It is closed when another key replaces it, and with the EP.
type peerKey struct {
	of     *messages
	key    *RKey // nil if there is none
	packed []byte
	users  int
}

// maxPeerKeys is the number of keys that a connection caches: for a program that sends from several buffers
// in turns.
const maxPeerKeys = 8

// unpack is EP.Unpack of a key that a peer has sent with a message. The caller must call keyDone.
func (m *messages) unpack(packed []byte) (*RKey, error) {
	var unused *peerKey
	for i := range m.keys {
		switch k := &m.keys[i]; {
		case k.key != nil && k.is(packed):
			k.users++
			return k.key, nil
		case k.users == 0 && (unused == nil || unused.key != nil):
			unused = k
		}
	}
	key, err := m.e.Unpack(packed)
	if err != nil || unused == nil {
		return key, err
	}
	if unused.key != nil {
		unused.key.Close()
	}
	key.cacheEntry = unused
	*unused = peerKey{m, key, append(unused.packed[:0], packed...), 1}
	return key, nil
}

// is reports whether packed is the key. Most other keys differ in the first bytes.
func (k *peerKey) is(packed []byte) bool { return bytes.Equal(k.packed, packed) }

// keyDone releases a key of messages.unpack. No operation of the caller may use the key any more. The EP may have
// started over with a new messages.
func keyDone(key *RKey) {
	k := key.cacheEntry
	if k == nil {
		key.Close()
		return
	}
	if k.users--; k.users == 0 && k.of.closed {
		k.key.Close()
		k.key = nil
	}
}

// closeKeys closes the keys that no operation uses. The others are closed when their operations complete.
func (m *messages) closeKeys() {
	for i := range m.keys {
		if k := &m.keys[i]; k.key != nil && k.users == 0 {
			k.key.Close()
			k.key = nil
		}
	}
}
