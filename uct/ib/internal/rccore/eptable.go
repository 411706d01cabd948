package rccore

import "math/bits"

// epTable maps QPNs to EPs: a hash table with open addressing and linear probing, at most half
// full. Empty slots contain vacant, an EP that no QPN matches, so the common case is one
// comparison. Devices number QPs consecutively, so the hash spreads neighbors: otherwise the EPs of an iface would
// be one run of full slots, which remove would visit to its end.
type epTable struct {
	slots  []*EP // length a power of two
	shift  uint8 // 32 - log2(len(slots))
	n      int
	vacant EP
}

const (
	minTable = 16
	noQPN    = ^uint32(0) // QPNs have 24 bits
	spread   = 0x9e3779b1 // 2^32 divided by the golden ratio: Knuth's multiplicative hash
)

// home returns the slot of a QPN where probes begin.
func (t *epTable) home(qpn uint32) uint32 { return qpn * spread >> (t.shift & 31) }

func (t *epTable) init() {
	t.vacant.QPN = noQPN
	t.vacant.NextOp = NoOp
	t.resize(minTable)
}

// resize makes n empty slots.
func (t *epTable) resize(n int) {
	t.slots, t.shift = make([]*EP, n), uint8(32-bits.TrailingZeros(uint(n)))
	for i := range t.slots {
		t.slots[i] = &t.vacant
	}
}

// find returns the EP of a QPN, or &t.vacant.
func (t *epTable) find(qpn uint32) *EP {
	if e := t.slots[t.home(qpn)]; e.QPN == qpn {
		return e
	}
	return t.probe(qpn)
}

func (t *epTable) probe(qpn uint32) *EP {
	mask := uint32(len(t.slots) - 1)
	for i := t.home(qpn); ; i = (i + 1) & mask {
		if e := t.slots[i]; e.QPN == qpn || e == &t.vacant {
			return e
		}
	}
}

func (t *epTable) add(e *EP) {
	if 2*(t.n+1) > len(t.slots) {
		t.rebuild(1 << bits.Len(uint(2*t.n+1)))
	}
	t.n++
	t.put(e)
}

func (t *epTable) put(e *EP) {
	mask := uint32(len(t.slots) - 1)
	i := t.home(e.QPN)
	for t.slots[i] != &t.vacant {
		i = (i + 1) & mask
	}
	t.slots[i] = e
}

// remove removes e, and inserts the EPs after it again, so that no probe ends early.
func (t *epTable) remove(e *EP) {
	mask := uint32(len(t.slots) - 1)
	i := t.home(e.QPN)
	for t.slots[i] != e {
		if t.slots[i] == &t.vacant {
			return
		}
		i = (i + 1) & mask
	}
	t.slots[i] = &t.vacant
	t.n--
	for i = (i + 1) & mask; t.slots[i] != &t.vacant; i = (i + 1) & mask {
		moved := t.slots[i]
		t.slots[i] = &t.vacant
		t.put(moved)
	}
}

func (t *epTable) rebuild(size int) {
	old := t.slots
	t.resize(max(size, minTable))
	for _, e := range old {
		if e != &t.vacant {
			t.put(e)
		}
	}
}
