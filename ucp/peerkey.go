package ucp

import "bytes"

// peerKeys are keys that a peer has sent for the data of messages, and that stay unpacked: who
// sends from the same memory again sends the same key. A key names its region by a random
// number, so that the key of other memory is never equal.
type peerKeys [maxPeerKeys]peerKey

// peerKey is one of them. It is closed when another one takes its place, and with the EP.
type peerKey struct {
	of     *messages
	key    *RKey // nil: none
	packed []byte
	users  int
}

// maxPeerKeys is how many keys a connection keeps: for the buffers that a program sends
// from in turns.
const maxPeerKeys = 8

// unpack is EP.Unpack of a key that a peer has sent with a message. Give it back with keyDone.
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
	key.kept = unused
	*unused = peerKey{m, key, append(unused.packed[:0], packed...), 1}
	return key, nil
}

// is reports that packed is the key. Most others differ in the first bytes.
func (k *peerKey) is(packed []byte) bool { return bytes.Equal(k.packed, packed) }

// keyDone gives a key back that messages.unpack has returned, also if its EP has other messages
// by now: no operation of the caller uses it any more.
func keyDone(key *RKey) {
	k := key.kept
	if k == nil {
		key.Close()
		return
	}
	if k.users--; k.users == 0 && k.of.closed {
		k.key.Close()
		k.key = nil
	}
}

// closeKeys closes the keys that no operation uses; the others go with their operations.
func (m *messages) closeKeys() {
	for i := range m.keys {
		if k := &m.keys[i]; k.key != nil && k.users == 0 {
			k.key.Close()
			k.key = nil
		}
	}
}
