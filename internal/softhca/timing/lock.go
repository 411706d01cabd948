package timing

// lock is a spin lock with first-in-first-out order. A nil lock is one that the driver does not
// use.
//
// Acquiring a free lock costs a locked instruction, and the transfer of its line if another core
// had it last. After the release of a lock for which k threads spin, all of them read the line
// again; on average half of these reads precede that of the next owner
// (Boyd-Wickizer et al., "Non-scalable locks are dangerous", OLS 2012, section 3).
type lock struct {
	m       *Model
	holder  *Thread
	last    *Thread
	waiting []*Thread
	waited  *Time // counter of the wait time
}

func (m *Model) newLock(used bool, waited *Time) *lock {
	if !used {
		return nil
	}
	return &lock{m: m, waited: waited}
}

// acquire returns when th owns the lock.
func (l *lock) acquire(th *Thread) {
	if l == nil || th.stopped {
		return
	}
	if l.holder != nil {
		from := l.m.now
		l.waiting = append(l.waiting, th)
		th.pause()
		*l.waited += l.m.now - from
		return
	}
	l.holder = th
	cost := l.m.params.Atomic
	if l.last != nil && l.last != th {
		cost += l.m.params.LineTransfer
	}
	th.spend(cost)
}

// release passes the lock to the next thread. It takes th no time.
func (l *lock) release(th *Thread) {
	if l == nil || th.stopped {
		return
	}
	l.last, l.holder = th, nil
	if len(l.waiting) == 0 {
		return
	}
	next := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.holder = next
	l.m.at(l.m.now+l.m.params.handOff(len(l.waiting)), next.run)
}

// handOff returns the time until the next owner sees the lock, while others spin too.
func (p *Params) handOff(others int) Time {
	return p.LineTransfer + Time(others)*p.LineTransfer/2
}

// shared is state in n cache lines that its users write.
type shared struct {
	m    *Model
	n    int
	last *Thread
}

// use moves the lines to the core of th.
func (s *shared) use(th *Thread) {
	if s.last != nil && s.last != th {
		th.spend(Time(s.n) * s.m.params.LineTransfer)
	}
	s.last = th
}

// Word is a counter that threads change with locked instructions: one cache line,
// which serves one at a time.
type Word struct {
	m    *Model
	line server
	last *Thread
}

// NewWord returns a counter.
func (m *Model) NewWord() *Word { return &Word{m: m} }

// Add accounts for one locked instruction of the running thread. Outside of a step it has no
// effect.
func (w *Word) Add() { w.access(w.m.params.Atomic) }

// Load accounts for reading the counter.
func (w *Word) Load() { w.access(0) }

func (w *Word) access(cost Time) {
	th := w.m.current
	if th == nil {
		return
	}
	th.settle()
	if w.last != nil && w.last != th {
		cost += w.m.params.LineTransfer
	}
	w.last = th
	th.until(w.line.book(w.m.now, cost))
}
