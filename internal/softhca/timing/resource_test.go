package timing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServer_Queues(t *testing.T) {
	var s server
	assert.Equal(t, Time(15), s.book(10, 5))
	assert.Equal(t, Time(18), s.book(11, 3), "after the first")
	assert.Equal(t, Time(31), s.book(30, 1), "idle in between")
	assert.Equal(t, Time(9), s.busy)
}

func TestLink_Packets(t *testing.T) {
	l := link{bandwidth: 1e9, header: 16, payload: 256}
	assert.Equal(t, 16*Nanosecond, l.send(0, 0), "a request has no payload")
	assert.Equal(t, 16*Nanosecond+80*Nanosecond, l.send(0, 64))
	l.free = 0
	assert.Equal(t, (257+32)*Nanosecond, l.send(0, 257), "two packets")

	l = link{bandwidth: 15_753_846_153}
	assert.Equal(t, Time(4063), l.span(64), "64 / 15.753846153 ns is 4062.5 ps, rounded up")
	assert.Equal(t, Second, l.span(15_753_846_153))
}

// The comments have the reasons of each wait: a is the first to request the lock.
func TestLock_HandOff(t *testing.T) {
	p := round()
	m := newModel(t, p)
	l := m.newLock(true, &m.stats.CQLockWait)
	var got [4]Time
	hold := 1000 * Nanosecond
	take := func(i int, from Time) func() {
		return func() {
			at(m, from)
			l.acquire(m.current)
			got[i] = m.now
			m.current.spend(hold)
			l.release(m.current)
		}
	}
	each(t, m, take(0, 2*Microsecond), take(1, 2*Microsecond+1), take(2, 2*Microsecond+2), take(3, 10*Microsecond))
	first := 2*Microsecond + p.Atomic // free, not used before
	second := first + hold + p.LineTransfer + p.LineTransfer/2
	third := second + hold + p.LineTransfer
	late := 10*Microsecond + p.Atomic + p.LineTransfer // free, in the cache of another core
	assert.Equal(t, [4]Time{first, second, third, late}, got)
	assert.Equal(t, second-(2*Microsecond+1)+third-(2*Microsecond+2), m.Stats().CQLockWait)
}

func TestLock_OwnAgain(t *testing.T) {
	m := newModel(t, round())
	l := m.newLock(true, &m.stats.CQLockWait)
	each(t, m, func() {
		for range 3 {
			before := m.now
			l.acquire(m.current)
			assert.Equal(t, m.params.Atomic, m.now-before)
			l.release(m.current)
		}
	})
}

func TestLock_NoneCostsNothing(t *testing.T) {
	m := newModel(t, round())
	l := m.newLock(false, &m.stats.CQLockWait)
	ran := each(t, m, func() {
		at(m, 5*Microsecond)
		l.acquire(m.current)
		l.release(m.current)
	})
	assert.Equal(t, 5*Microsecond, ran[0].End-0)
}

func TestHandOff_GrowsWithTheWaiters(t *testing.T) {
	p := round()
	for k, want := range []Time{50, 75, 100, 125} {
		assert.Equal(t, want*Nanosecond, p.handOff(k))
	}
}

// Lines are transferred only when another thread uses the object.
func TestShared_Lines(t *testing.T) {
	m := newModel(t, round())
	s := shared{m: m, n: 3}
	var took [3]Time
	use := func(i int, from Time) func() {
		return func() {
			at(m, from)
			s.use(m.current)
			took[i] = m.now - from
			s.use(m.current)
			assert.Equal(t, from+took[i], m.now)
		}
	}
	each(t, m, use(0, 2*Microsecond), use(1, 3*Microsecond), use(2, 4*Microsecond))
	assert.Equal(t, [3]Time{0, 150 * Nanosecond, 150 * Nanosecond}, took)
}

func TestWord_ServesOneAtATime(t *testing.T) {
	m := newModel(t, round())
	w := m.NewWord()
	var end [3]Time
	add := func(i int) func() {
		return func() { at(m, 2*Microsecond); w.Add(); end[i] = m.now - 2*Microsecond }
	}
	each(t, m, add(0), add(1), add(2))
	assert.ElementsMatch(t, []Time{3 * Nanosecond, 56 * Nanosecond, 109 * Nanosecond}, end[:])
	now := m.Now()
	w.Add()
	assert.Equal(t, now, m.Now(), "time outside of a step")
}

func TestWord_Load(t *testing.T) {
	m := newModel(t, round())
	w := m.NewWord()
	each(t, m,
		func() { at(m, 2*Microsecond); w.Add() },
		func() {
			for _, want := range []Time{50 * Nanosecond, 0} {
				at(m, max(m.now, 3*Microsecond))
				before := m.now
				w.Load()
				assert.Equal(t, want, m.now-before)
			}
		})
}

// One register has two buffers; writes to two registers of a page are serialized.
func TestPage_Registers(t *testing.T) {
	const d, way = 100, 200
	type write struct {
		at       Time
		register uint32
	}
	for name, c := range map[string]struct {
		writes []write
		begin  []Time
	}{
		"far apart":            {[]write{{0, 1}, {300, 2}, {600, 1}}, []Time{0, 300, 600}},
		"one register":         {[]write{{0, 1}, {100, 1}, {200, 1}, {300, 1}}, []Time{0, 100, 300, 400}},
		"two registers":        {[]write{{0, 1}, {10, 2}, {20, 1}}, []Time{0, 300, 600}},
		"two, then the second": {[]write{{0, 1}, {10, 2}, {20, 2}}, []Time{0, 300, 300}},
	} {
		t.Run(name, func(t *testing.T) {
			var p Page
			for i, w := range c.writes {
				begin, arrive := p.reserve(w.at, w.register, d, way)
				assert.Equal(t, c.begin[i], begin, "write %d", i)
				assert.Equal(t, begin+d+way, arrive)
			}
		})
	}
}

func TestPage_WriteKeepsTheCoreBusy(t *testing.T) {
	m := newModel(t, round())
	p := m.NewPage()
	each(t, m, func() {
		at(m, 2*Microsecond)
		arrive := p.write(m.current, even, 2)
		assert.Equal(t, 2*Microsecond+200*Nanosecond, m.now, "two blocks")
		assert.Equal(t, m.now+200*Nanosecond, arrive)
	})
	assert.Zero(t, m.Stats().PageWait)
}

func TestRail_ByCacheLine(t *testing.T) {
	m := newModel(t, round())
	a := m.nics[0].rail(0x1000)
	assert.Same(t, a, m.nics[0].rail(0x103f), "the same line")
	b := m.nics[0].rail(0x1040)
	assert.NotSame(t, a, b, "the next line")
	assert.Same(t, a, m.nics[0].rail(0x77000), "two rails only")
	assert.Same(t, b, m.nics[0].rail(0x1041), "the rail of a line does not change")
}

// Lookups on one rail wait for each other; lookups on two rails do not.
func TestGather_Rails(t *testing.T) {
	for name, c := range map[string]struct {
		addrs []uint64
		last  Time
	}{
		"one line":  {[]uint64{0x1000, 0x1002, 0x1004}, 120},
		"two lines": {[]uint64{0x1000, 0x1040, 0x1002}, 80},
	} {
		t.Run(name, func(t *testing.T) {
			p := round()
			p.PCIeBandwidth = 1e15 // bytes take no time
			m := newModel(t, p)
			var end Time
			for _, a := range c.addrs {
				m.nics[0].gather(Span{a, 2}, func() { end = m.now })
			}
			for m.next() {
			}
			assert.Equal(t, (c.last + 1000), Time(end.Nanoseconds()))
		})
	}
}

func TestRead_Tags(t *testing.T) {
	p := round()
	p.ReadTags = 2
	m := newModel(t, p)
	var done []Time
	for range 5 {
		m.nics[0].read(64, func() { done = append(done, m.now) })
	}
	for m.next() {
	}
	require.Len(t, done, 5)
	// Two at a time; a request has 16 bytes, the reply 80.
	assert.Equal(t, []Time{1096 * Nanosecond, 1176 * Nanosecond, 2192 * Nanosecond, 2272 * Nanosecond, 3288 * Nanosecond}, done)
	assert.Equal(t, 2, m.nics[0].tags)
}
