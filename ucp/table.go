package ucp

// epTable gives EPs the names by which peers call them. A name has the slot in its
// low half and, in the high half, how often the slot was used, so that a late
// message does not find the slot's next EP.
type epTable struct {
	slots []epSlot
	free  []uint32
	n     int
}

type epSlot struct {
	ep  *EP
	gen uint32
}

// add enters e and returns its name, never 0.
func (t *epTable) add(e *EP) uint64 {
	var i uint32
	if k := len(t.free); k > 0 {
		i = t.free[k-1]
		t.free = t.free[:k-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, epSlot{})
	}
	s := &t.slots[i]
	if s.gen++; s.gen == 0 {
		s.gen = 1
	}
	s.ep = e
	t.n++
	return uint64(s.gen)<<32 | uint64(i)
}

func (t *epTable) find(id uint64) *EP {
	if i := uint64(uint32(id)); i < uint64(len(t.slots)) && t.slots[i].gen == uint32(id>>32) {
		return t.slots[i].ep
	}
	return nil
}

func (t *epTable) remove(id uint64) {
	if t.find(id) == nil {
		return
	}
	t.slots[uint32(id)].ep = nil
	t.free = append(t.free, uint32(id))
	t.n--
}

func (t *epTable) len() int { return t.n }

// all lists the EPs in the order of their slots.
func (t *epTable) all() []*EP {
	eps := make([]*EP, 0, t.n)
	for i := range t.slots {
		if e := t.slots[i].ep; e != nil {
			eps = append(eps, e)
		}
	}
	return eps
}

// remoteTable names the atomics that targets execute for us, in the same way.
type remoteTable struct {
	slots []remoteSlot
	free  []uint32
}

type remoteSlot struct {
	req *Request
	gen uint32
}

func (t *remoteTable) add(r *Request) uint64 {
	if len(t.free) == 0 {
		t.slots = append(t.slots, remoteSlot{})
		t.free = append(t.free, uint32(len(t.slots)-1))
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s := &t.slots[i]
	s.gen++
	s.req = r
	return uint64(s.gen)<<32 | uint64(i)
}

func (t *remoteTable) find(id uint64) *Request {
	if i := uint64(uint32(id)); i < uint64(len(t.slots)) && t.slots[i].gen == uint32(id>>32) {
		return t.slots[i].req
	}
	return nil
}

// take ends a name.
func (t *remoteTable) take(id uint64) {
	if t.find(id) == nil {
		return
	}
	t.slots[uint32(id)].req = nil
	t.free = append(t.free, uint32(id))
}
