package timing

// Process is a program on a core beside a NIC. Objects created while it is entered belong to it.
type Process struct {
	m        *Model
	nic      *NIC
	arrivals uint64 // completions of sends and receives, and what Notify reported
	sleeping *Thread
}

// NewProcess returns a process beside the first NIC.
func (m *Model) NewProcess() *Process { return &Process{m: m, nic: m.nics[0]} }

// Place moves the process to another NIC, before Run.
func (p *Process) Place(n *NIC) { p.nic = n }

// Enter makes the running thread one of p; outside of a step, the caller that creates objects. nil
// is no process.
func (m *Model) Enter(p *Process) {
	if m.current != nil {
		m.current.process = p
		return
	}
	m.process = p
}

// owner returns the entered process; nil if there is none.
func (m *Model) owner() *Process {
	if m.current != nil {
		return m.current.process
	}
	return m.process
}

// NIC returns the NIC of the queue pair.
func (q *QP) NIC() *NIC {
	switch {
	case q.cfg.NIC != nil:
		return q.cfg.NIC
	case q.process != nil:
		return q.process.nic
	}
	return q.m.nics[0]
}

// NIC returns the NIC of the process that owns the queue.
func (c *CQ) NIC() *NIC {
	if c.process != nil {
		return c.process.nic
	}
	return c.m.nics[0]
}

// Arrivals returns the number of completions so far in CQs of the entered process, and of its notifications.
func (m *Model) Arrivals() uint64 {
	if p := m.owner(); p != nil {
		return p.arrivals
	}
	return 0
}

// Idle suspends the running thread until the number of Arrivals exceeds the given one. It replaces
// polls without result. It returns false if the run is over and nothing will arrive.
func (m *Model) Idle(since uint64) bool {
	th := m.current
	if th == nil || th.stopped || th.process == nil {
		return false
	}
	th.settle()
	p := th.process
	for p.arrivals == since && !th.stopped {
		p.sleeping = th
		th.pause()
		p.sleeping = nil
	}
	return !th.stopped
}

// Free runs f for the running thread without taking time: polls that a thread without work would
// make before it sleeps until an arrival.
func (m *Model) Free(f func()) {
	th := m.current
	if th == nil || th.free {
		f()
		return
	}
	th.settle()
	th.free = true
	f()
	th.settle()
	th.free = false
}

// Notify reports that another core has stored something that the process may wait for, such as a message in shared
// memory. It counts as one of Arrivals. It is called in a step of the model, after Spend of what the store costs, and the process
// wakes at that time.
func (p *Process) Notify() { p.notify() }

// notify wakes a process that sleeps in Idle; nil is none.
func (p *Process) notify() {
	if p == nil {
		return
	}
	p.arrivals++
	if th := p.sleeping; th != nil {
		p.sleeping = nil
		p.m.at(p.m.now, th.run)
	}
}

// Spend advances the clock of the running thread by d: it computes. Outside of a step it has no
// effect.
func (m *Model) Spend(d Time) {
	if th := m.current; th != nil && !th.stopped {
		th.settle()
		th.spend(d)
	}
}

// Copy charges the running thread for copying n bytes.
func (m *Model) Copy(n int) {
	l := link{bandwidth: m.params.CopyBandwidth}
	m.Spend(l.span(int64(n)))
}

// Received records a completion of a receive in the queue.
func (c *CQ) Received() {
	c.from = append(c.from, completion{})
	c.process.notify()
}
