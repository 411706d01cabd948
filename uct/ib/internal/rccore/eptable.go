package rccore

import "math/bits"

// epTable maps QPNs to EPs: a hash table with open addressing and linear probing, at most half
// full. Empty slots contain vacant, an EP that no QPN matches, so the common case is one
// comparison.
type epTable struct {
	slots     []*EP // length a power of two
	n         int
	displaced int // EPs that are not in the slot of their QPN
	vacant    EP
}

const (
	minTable = 16
	noQPN    = ^uint32(0) // QPNs have 24 bits
)

func (t *epTable) init() {
	t.vacant.QPN = noQPN
	t.vacant.NextOp = NoOp
	t.slots = t.empty(minTable)
}

func (t *epTable) empty(n int) []*EP {
	s := make([]*EP, n)
	for i := range s {
		s[i] = &t.vacant
	}
	return s
}

// find returns the EP of a QPN, or &t.vacant.
func (t *epTable) find(qpn uint32) *EP {
	s := t.slots
	if e := s[uint(qpn)&uint(len(s)-1)]; e.QPN == qpn {
		return e
	}
	return t.probe(qpn)
}

func (t *epTable) probe(qpn uint32) *EP {
	mask := uint32(len(t.slots) - 1)
	for i := qpn & mask; ; i = (i + 1) & mask {
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
	i := e.QPN & mask
	if t.slots[i] != &t.vacant {
		t.displaced++
	}
	for t.slots[i] != &t.vacant {
		i = (i + 1) & mask
	}
	t.slots[i] = e
}

// remove removes e, and inserts the EPs after it again, so that no probe ends early. If all EPs are in the slots of their QPNs, it
// moves none: devices number QPs consecutively, so the EPs of an iface are one run of full slots.
func (t *epTable) remove(e *EP) {
	mask := uint32(len(t.slots) - 1)
	i := e.QPN & mask
	for t.slots[i] != e {
		if t.slots[i] == &t.vacant {
			return
		}
		i = (i + 1) & mask
	}
	t.clear(i)
	t.n--
	if t.displaced == 0 {
		return
	}
	for i = (i + 1) & mask; t.slots[i] != &t.vacant; i = (i + 1) & mask {
		moved := t.slots[i]
		t.clear(i)
		t.put(moved)
	}
}

// clear empties slot i.
func (t *epTable) clear(i uint32) {
	if t.slots[i].QPN&uint32(len(t.slots)-1) != i {
		t.displaced--
	}
	t.slots[i] = &t.vacant
}

func (t *epTable) rebuild(size int) {
	old := t.slots
	t.slots, t.displaced = t.empty(max(size, minTable)), 0
	for _, e := range old {
		if e != &t.vacant {
			t.put(e)
		}
	}
}
