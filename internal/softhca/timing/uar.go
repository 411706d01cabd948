package timing

// Page is a UAR page: registers (micro-UARs) that the cores write through
// write-combining buffers.
//
// A register has two buffers, written in turn, so a write waits for the arrival of
// the one before the last. The registers of a page cannot be written at the same
// time: a write to another register than the last one waits until the last one has
// arrived. That is the first guess of the endpoints paper (section V-B: registers of a UAR
// share those of the NIC); the cause is not public.
type Page struct {
	m        *Model
	register uint32
	arrived  [2]Time // at the NIC: of the last write, and of the one before
	locks    map[uint32]*lock
}

// NewPage returns a page.
func (m *Model) NewPage() *Page { return &Page{m: m, locks: map[uint32]*lock{}} }

// reserve books a write of duration d to a register, requested now, and returns its start and its
// arrival.
func (p *Page) reserve(now Time, register uint32, d, oneWay Time) (begin, arrive Time) {
	begin = max(now, p.arrived[1])
	if register != p.register {
		begin = max(now, p.arrived[0])
	}
	arrive = begin + d + oneWay
	p.arrived[1], p.arrived[0] = p.arrived[0], arrive
	p.register = register
	return begin, arrive
}

// write makes th write blocks of up to 64 bytes to a register, and returns when they arrive at the
// NIC.
func (p *Page) write(th *Thread, register uint32, blocks int) (arrive Time) {
	m := p.m
	d := Time(blocks) * m.params.RegisterWrite
	begin, arrive := p.reserve(m.now, register, d, m.params.PCIeOneWay)
	m.stats.PageWait += begin - m.now
	th.until(begin + d)
	return arrive
}

// lockOf returns the lock of a register that QPs share.
func (p *Page) lockOf(register uint32) *lock {
	l := p.locks[register]
	if l == nil {
		l = p.m.newLock(true, &p.m.stats.RegisterLockWait)
		p.locks[register] = l
	}
	return l
}
