package softhca

import "github.com/gucx/gucx/ucs"

// objTable numbers the objects of one type, from 1. A new object gets the lowest free number.
// hca.mu protects it.
type objTable[T any] struct {
	slot []*T
	live int
}

func (t *objTable[T]) add(obj *T) (uint32, error) {
	for i := range t.slot {
		if t.slot[i] == nil {
			t.slot[i] = obj
			t.live++
			return uint32(i + 1), nil
		}
	}
	if len(t.slot) >= maxObjects {
		return 0, ucs.ErrNoMemory
	}
	t.slot = append(t.slot, obj)
	t.live++
	return uint32(len(t.slot)), nil
}

// maxObjects limits the objects of each objTable.
const maxObjects = 1 << 16

func (t *objTable[T]) get(n uint32) *T {
	if n == 0 || int(n) > len(t.slot) {
		return nil
	}
	return t.slot[n-1]
}

func (t *objTable[T]) remove(n uint32) {
	t.slot[n-1] = nil
	t.live--
}
