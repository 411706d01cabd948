package timing

// Process is a program on a core beside a NIC: what is made while it is entered belongs to
// it.
type Process struct {
	m        *Model
	nic      *NIC
	arrivals uint64 // completions of sends and receives, and what Notify reported
	sleeping *Thread
}

// NewProcess makes a process beside the first NIC.
func (m *Model) NewProcess() *Process { return &Process{m: m, nic: m.nics[0]} }

// Place puts the process beside another NIC, before Run.
func (p *Process) Place(n *NIC) { p.nic = n }

// Enter has the running thread be one of p from now on; outside of a step,
// the caller that makes objects. nil is no process.
func (m *Model) Enter(p *Process) {
	if m.current != nil {
		m.current.process = p
		return
	}
	m.process = p
}

// owner is the process that is entered; nil if none is.
func (m *Model) owner() *Process {
	if m.current != nil {
		return m.current.process
	}
	return m.process
}

// NIC is that of the queue pair.
func (q *QP) NIC() *NIC {
	switch {
	case q.cfg.NIC != nil:
		return q.cfg.NIC
	case q.process != nil:
		return q.process.nic
	}
	return q.m.nics[0]
}

// NIC is that of the process that the queue is of.
func (c *CQ) NIC() *NIC {
	if c.process != nil {
		return c.process.nic
	}
	return c.m.nics[0]
}

// Arrivals is how many completions have come into CQs of the process that is entered, and how often it was notified.
func (m *Model) Arrivals() uint64 {
	if p := m.owner(); p != nil {
		return p.arrivals
	}
	return 0
}

// Idle has the running thread do nothing until something has come beyond the given number of
// Arrivals. It stands for polling that finds nothing. False when the run is over: it will
// not come.
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

// Free has the running thread do f without time: looks that a thread which polls in vain would
// take anyway, before it sleeps until something comes.
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
// memory. It counts as one of Arrivals.
func (p *Process) Notify() { p.notify() }

// notify tells a process of a completion; nil is none.
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

// Spend lets time of the running thread pass: it computes. Outside of a step it does
// nothing.
func (m *Model) Spend(d Time) {
	if th := m.current; th != nil && !th.stopped {
		th.settle()
		th.spend(d)
	}
}

// Copy has the running thread spend what copying n bytes takes.
func (m *Model) Copy(n int) {
	l := link{bandwidth: m.params.CopyBandwidth}
	m.Spend(l.span(int64(n)))
}

// Received tells of a completion of a receive in the queue.
func (c *CQ) Received() {
	c.from = append(c.from, completion{})
	c.process.notify()
}
