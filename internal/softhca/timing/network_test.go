package timing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// far is a port whose work requests are executed when they arrive.
type far struct {
	*port
	refuse   int  // number of arrivals that cannot be executed
	again    Time // the delay that they return
	unready  int  // number of first packets that find no receive
	arrived  []Time
	executed []uint16
}

// Ready implements Target.
func (f *far) Ready(uint16, int) (Time, bool) {
	if f.unready > 0 {
		f.unready--
		return f.again, false
	}
	return 0, true
}

// Arrive implements Target.
func (f *far) Arrive(index uint16, _ int) (Time, bool) {
	if f.refuse > 0 {
		f.refuse--
		return f.again, false
	}
	f.arrived = append(f.arrived, f.m.Now())
	f.executed = append(f.executed, index)
	return 0, true
}

func newNetwork(t *testing.T) *Model {
	t.Helper()
	m, err := NewNetwork(round())
	require.NoError(t, err)
	return m
}

func newFar(t *testing.T, m *Model) *far {
	t.Helper()
	f := &far{port: &port{t: t, m: m}}
	f.cq = m.NewCQ(false, func() uint32 { return f.consumed })
	f.qp = m.NewQP(QPConfig{Page: m.NewPage(), Sink: f, CQ: f.cq})
	return f
}

// complete runs a thread that posts and then polls until all work requests have completed.
func complete(t *testing.T, f *far, wqes ...WQE) (begin Time) {
	t.Helper()
	_, err := f.m.Run(1, []Step{func() (bool, error) {
		if wqes != nil {
			begin = f.m.Now()
			f.qp.Post(even, true, wqes)
			wqes = nil
			return false, nil
		}
		f.poll()
		return int(f.consumed) == int(f.next), nil
	}})
	require.NoError(t, err)
	return begin
}

// A message arrives after the latency and the time of all its bytes; its completion arrives a latency
// later.
func TestNetwork_Write(t *testing.T) {
	m := newNetwork(t)
	f := newFar(t, m)
	w := f.write(100)
	w.To = m.NewNIC()
	begin := complete(t, f, w)
	const (
		post    = 10 + 20 + 30         // to the write of the register
		known   = post + 100 + 200     // register write, posted write
		sending = known + 64 + 16 + 8  // BlueFlame over PCIe, pipeline
		first   = sending + 1000       // half the round trip
		stored  = first + 132 + 116    // a packet on the wire, and over PCIe
		arrived = stored + 300         // memory
		acked   = arrived + 1000 + 380 // CQE
	)
	assert.Equal(t, []Time{begin + arrived*Nanosecond}, f.arrived)
	assert.Equal(t, []Time{begin + acked*Nanosecond}, f.visible)
}

// Reading, sending and storing of a large message overlap, packet by packet.
func TestNetwork_Pipelined(t *testing.T) {
	m := newNetwork(t)
	f := newFar(t, m)
	const length = 1 << 20
	w := f.gather(Span{0x1000, length})
	w.To = m.NewNIC()
	begin := complete(t, f, w)
	took := f.arrived[0] - begin
	assert.Greater(t, took, Time(length)*Nanosecond)
	assert.Less(t, took, Time(length)*Nanosecond*115/100, "headers, and the first packet three times")
}

// Fetched data arrives after a round trip.
func TestNetwork_Fetch(t *testing.T) {
	m := newNetwork(t)
	f := newFar(t, m)
	w := f.write(5000)
	w.Kind, w.To = Fetch, m.NewNIC()
	begin := complete(t, f, w)
	took := f.arrived[0] - begin
	assert.Greater(t, took, (2*1000+1000+5000)*Nanosecond)
	assert.Less(t, took, (2*1000+1000+3*5000)*Nanosecond, "reading, sending and storing overlap")
	assert.Less(t, f.visible[0]-f.arrived[0], Microsecond, "the data has arrived")
}

// A message that finds no receive is sent again later, and so are later ones; a queue of another connection
// is not delayed.
func TestNetwork_NotReady(t *testing.T) {
	m := newNetwork(t)
	a, b := newFar(t, m), newFar(t, m)
	a.refuse, a.again = 3, 50*Microsecond
	to := m.NewNIC()
	list := func(f *far) (l []WQE) {
		for range 3 {
			w := f.write(64)
			w.To = to
			l = append(l, w)
		}
		return l
	}
	posts := []func(){func() { a.qp.Post(even, false, list(a)) }, func() { b.qp.Post(even, false, list(b)) }}
	_, err := m.Run(1, []Step{func() (bool, error) {
		if len(posts) > 0 {
			posts[0]()
			posts = posts[1:]
			return false, nil
		}
		return a.poll()+b.poll() == 0 && len(a.visible)+len(b.visible) == 6, nil
	}})
	require.NoError(t, err)
	assert.Equal(t, []uint16{0, 1, 2}, a.executed)
	assert.Equal(t, []uint16{0, 1, 2}, b.executed)
	assert.Greater(t, a.arrived[0], 3*50*Microsecond)
	assert.Less(t, b.arrived[2], 10*Microsecond)
	assert.Equal(t, uint64(3), m.Stats().NotReady)
}

// An idle process takes no time of others and continues when a completion arrives.
func TestProcess_Idle(t *testing.T) {
	m := newNetwork(t)
	p := m.NewProcess()
	m.Enter(p)
	f := newFar(t, m)
	m.Enter(nil)
	var woke, computed Time
	_, err := m.Run(1, []Step{
		func() (bool, error) {
			m.Enter(p)
			seen := m.Arrivals()
			f.qp.Post(even, true, []WQE{f.write(8)})
			assert.True(t, m.Idle(seen))
			woke = m.Now()
			assert.Equal(t, seen+1, m.Arrivals())
			return true, nil
		},
		func() (bool, error) {
			m.Spend(Second)
			m.Copy(1000)
			computed = m.Now()
			return true, nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, f.visible, []Time{woke})
	assert.GreaterOrEqual(t, computed, Second+1000*Nanosecond)
}

// An idle process continues at the time when another one notifies it.
func TestProcess_Notify(t *testing.T) {
	m := newNetwork(t)
	p := m.NewProcess()
	var notified, woke Time
	_, err := m.Run(1, []Step{
		func() (bool, error) {
			m.Enter(p)
			seen := m.Arrivals()
			assert.True(t, m.Idle(seen))
			woke = m.Now()
			assert.Equal(t, seen+1, m.Arrivals())
			return true, nil
		},
		func() (bool, error) {
			m.Spend(Second)
			notified = m.Now()
			p.Notify()
			m.Spend(Second)
			return true, nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, notified, woke)
}

// A run in which nothing can arrive any more ends with ErrStalled.
func TestProcess_Stalled(t *testing.T) {
	m := newNetwork(t)
	_, err := m.Run(1, []Step{func() (bool, error) {
		m.Enter(m.NewProcess())
		assert.False(t, m.Idle(m.Arrivals()))
		return true, nil
	}})
	require.ErrorIs(t, err, ErrStalled)
}

// A process uses the NIC of Place.
func TestProcess_Place(t *testing.T) {
	m := newNetwork(t)
	p := m.NewProcess()
	m.Enter(p)
	f := newFar(t, m)
	m.Enter(nil)
	nic := m.NewNIC()
	p.Place(nic)
	assert.Same(t, nic, f.qp.NIC())
	assert.Same(t, m.nics[0], newFar(t, m).qp.NIC())
}

// Actions inside of Free take no time, and work requests that were posted there are sent.
func TestProcess_Free(t *testing.T) {
	m := newNetwork(t)
	f := newFar(t, m)
	_, err := m.Run(1, []Step{func() (bool, error) {
		begin := m.Now()
		m.Free(func() {
			f.poll()
			m.Spend(Second)
			f.qp.Post(even, true, []WQE{f.write(8)})
		})
		assert.Equal(t, begin, m.Now())
		m.Spend(1000 * Microsecond)
		assert.Len(t, f.visible, 1)
		f.poll()
		return true, nil
	}})
	require.NoError(t, err)
}

// A large message without a receive is refused at its first packet, and then does not occupy the wire.
func TestNetwork_RefusedEarly(t *testing.T) {
	m := newNetwork(t)
	a, b := newFar(t, m), newFar(t, m)
	a.unready, a.again = 2, 100*Microsecond
	to := m.NewNIC()
	const length = 1 << 20 // one millisecond on the wire
	long, short := a.gather(Span{0x1000, length}), b.write(8)
	long.To, short.To = to, to
	posted := 0
	_, err := m.Run(1, []Step{func() (bool, error) {
		switch posted++; posted {
		case 1:
			a.qp.Post(even, false, []WQE{long})
		case 2:
			m.Spend(20 * Microsecond) // the message has been refused
			b.qp.Post(even, false, []WQE{short})
		}
		a.poll()
		b.poll()
		return len(a.visible)+len(b.visible) == 2, nil
	}})
	require.NoError(t, err)
	assert.Less(t, b.arrived[0], 50*Microsecond)
	assert.Greater(t, a.arrived[0], 200*Microsecond+length*Nanosecond)
	assert.Less(t, a.arrived[0], 300*Microsecond+length*Nanosecond*115/100)
	assert.Equal(t, uint64(2), m.Stats().NotReady)
}

// Outside of runs only the calls of Clock advance it, so that a wait for a time always takes the same number of
// calls; inside, it is the time of the run.
func TestModel_Clock(t *testing.T) {
	m := newNetwork(t)
	assert.Equal(t, outsideTick, m.Clock())
	_, err := m.Run(1, []Step{func() (bool, error) {
		assert.Equal(t, m.Now(), m.Clock())
		m.Spend(Microsecond)
		assert.Equal(t, m.Now(), m.Clock())
		return true, nil
	}})
	require.NoError(t, err)
	assert.Equal(t, 2*outsideTick, m.Clock())
	assert.Equal(t, 3*outsideTick, m.Clock())
}
