package tuple

import "math/bits"

// table maps tags to values: open addressing, at most half full.
type table[V any] struct {
	slots []tableSlot[V] // a power of two, or none
	n     int
	shift uint
}

type tableSlot[V any] struct {
	tag  uint64
	used bool
	v    V
}

// tagHash hashes tags, whose parts are small numbers (Fibonacci hashing, Knuth, The Art
// of Computer Programming, volume 3, 6.4).
const tagHash = 0x9e3779b97f4a7c15

func (t *table[V]) home(tag uint64) int { return int(tag * tagHash >> t.shift) }

// find returns the value of a tag, or the zero value.
func (t *table[V]) find(tag uint64) (v V) {
	if t.n == 0 {
		return v
	}
	for i := t.home(tag); ; i = (i + 1) & (len(t.slots) - 1) {
		s := &t.slots[i]
		if !s.used || s.tag == tag {
			return s.v
		}
	}
}

// add adds a tag that is not in the table.
func (t *table[V]) add(tag uint64, v V) {
	if 2*(t.n+1) > len(t.slots) {
		t.grow()
	}
	t.n++
	i := t.home(tag)
	for t.slots[i].used {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = tableSlot[V]{tag, true, v}
}

func (t *table[V]) grow() {
	const least = 16
	old := t.slots
	t.slots = make([]tableSlot[V], max(2*len(old), least))
	t.n, t.shift = 0, uint(64-bits.Len(uint(len(t.slots)-1)))
	for i := range old {
		if old[i].used {
			t.add(old[i].tag, old[i].v)
		}
	}
}

// remove removes a tag, and moves back the entries that it displaced.
func (t *table[V]) remove(tag uint64) {
	if t.n == 0 {
		return
	}
	mask := len(t.slots) - 1
	i := t.home(tag)
	for t.slots[i].used && t.slots[i].tag != tag {
		i = (i + 1) & mask
	}
	if !t.slots[i].used {
		return
	}
	t.n--
	for k := (i + 1) & mask; t.slots[k].used; k = (k + 1) & mask {
		if (k-t.home(t.slots[k].tag))&mask >= (k-i)&mask {
			t.slots[i] = t.slots[k]
			i = k
		}
	}
	t.slots[i] = tableSlot[V]{}
}

// all calls f with each value until f returns false. f must not change the table.
func (t *table[V]) all(f func(tag uint64, v V) bool) {
	for i := range t.slots {
		if s := &t.slots[i]; s.used && !f(s.tag, s.v) {
			return
		}
	}
}
