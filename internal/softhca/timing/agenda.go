package timing

// agenda contains future events by time; events with equal times are in the order of their
// creation.
type agenda struct {
	now  Time
	made uint64
	heap []event
}

type event struct {
	at  Time
	seq uint64
	do  func()
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// at schedules do for time t, which must not be in the past.
func (a *agenda) at(t Time, do func()) {
	if t < a.now {
		panic("timing: an event in the past")
	}
	a.made++
	a.heap = append(a.heap, event{t, a.made, do})
	for i := len(a.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !a.heap[i].before(&a.heap[up]) {
			break
		}
		a.heap[i], a.heap[up] = a.heap[up], a.heap[i]
		i = up
	}
}

// quietUntil reports whether there is no event up to and at time t.
func (a *agenda) quietUntil(t Time) bool { return len(a.heap) == 0 || a.heap[0].at > t }

// next runs the next event; false if there is none.
func (a *agenda) next() bool {
	if len(a.heap) == 0 {
		return false
	}
	first := a.heap[0]
	last := len(a.heap) - 1
	a.heap[0] = a.heap[last]
	a.heap[last] = event{}
	a.heap = a.heap[:last]
	a.sink()
	a.now = first.at
	first.do()
	return true
}

// sink restores the order of the heap after its first entry was replaced.
func (a *agenda) sink() {
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(a.heap); c++ {
			if a.heap[c].before(&a.heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		a.heap[i], a.heap[least] = a.heap[least], a.heap[i]
		i = least
	}
}
