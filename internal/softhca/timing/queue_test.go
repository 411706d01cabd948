package timing

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const postCPU = 10 + 20 + 30 + 100 // of one work request, in ns: call, build, record, register

// The time of one message is the sum of the costs on its path.
func TestPost_OneMessage(t *testing.T) {
	const (
		// to the NIC, 64+16 bytes; pipeline; 2+32 bytes of wire; acknowledgement; CQE
		blueFlame = 200 + 80 + 8 + 34 + 2000 + 80 + 300
		// 8+16 bytes; the request of 16 bytes and the work request with 80
		doorbell = 200 + 24 + 16 + 1000 + 80 + 8 + 34 + 2000 + 80 + 300
		// a lookup, a request, 2+16 bytes
		payload = 40 + 16 + 1000 + 18
		// the reply: the other side reads; 2+32 bytes of wire, 2+16 to memory
		fetched = 1000 + 34 + 18
	)
	for name, c := range map[string]struct {
		blueFlame bool
		change    func(*WQE)
		want      Time
	}{
		"BlueFlame, inline":   {true, nil, blueFlame},
		"doorbell, inline":    {false, nil, doorbell},
		"BlueFlame, gathered": {true, func(w *WQE) { w.Payload = []Span{{0x1000, 2}} }, blueFlame + payload},
		"doorbell, gathered":  {false, func(w *WQE) { w.Payload = []Span{{0x1000, 2}} }, doorbell + payload},
		"BlueFlame, read":     {true, func(w *WQE) { w.Kind = Fetch }, blueFlame - 2 + fetched},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, round())
			p := newPort(t, m, m.NewPage())
			w := p.write(2)
			if c.change != nil {
				c.change(&w)
			}
			ran := each(t, m, func() { p.qp.Post(even, c.blueFlame, []WQE{w}) })
			assert.Equal(t, postCPU*Nanosecond, ran[0].End-ran[0].Begin)
			require.Len(t, p.visible, 1)
			assert.Equal(t, c.want*Nanosecond, p.visible[0]-ran[0].End)
			assert.Zero(t, m.inFlight)
		})
	}
}

// A list of work requests has one doorbell, and the NIC fetches it in reads of 512 bytes, one after the
// other.
func TestPost_List(t *testing.T) {
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	list := make([]WQE, 12)
	for i := range list {
		list[i] = p.write(2)
		list[i].Signaled = i == 7 || i == 11
	}
	ran := each(t, m, func() { p.qp.Post(even, false, list) })
	assert.Equal(t, (10+12*20+30+100)*Nanosecond, ran[0].End-ran[0].Begin)
	require.Equal(t, []uint16{7, 11}, p.indexes)
	const (
		known  = 200 + 24 + 16 + 1000 + 512 + 2*16 // the first eight
		eighth = known + 8 + 8*34                  // the wire is slower than the pipeline
		rest   = 2000 + 80 + 300
		second = known + 16 + 1000 + 256 + 16 // the other four
		last   = second + 8 + 4*34
	)
	assert.Equal(t, []Time{(eighth + rest) * Nanosecond, (last + rest) * Nanosecond},
		[]Time{p.visible[0] - ran[0].End, p.visible[1] - ran[0].End})
	s := m.Stats()
	assert.Equal(t, []uint64{12, 1, 0, 2}, []uint64{s.Messages, s.Doorbells, s.BlueFlames, s.Reads})
}

// With two outstanding reads the second part of a list is requested at once.
func TestPost_ListInTwoReads(t *testing.T) {
	params := round()
	params.WQEReads = 2
	m := newModel(t, params)
	p := newPort(t, m, m.NewPage())
	list := make([]WQE, 12)
	for i := range list {
		list[i] = p.write(2)
		list[i].Signaled = i == 11
	}
	ran := each(t, m, func() { p.qp.Post(even, false, list) })
	const (
		known = 200 + 24 + 16 + 1000 + 512 + 2*16 + 256 + 16 // one after the other on the link
		last  = known + 8 + 4*34                             // the first eight were sent meanwhile
	)
	require.Len(t, p.visible, 1)
	assert.Equal(t, (last+2000+80+300)*Nanosecond, p.visible[0]-ran[0].End)
}

// A work request of BlueFlame does not overtake one that is fetched.
func TestPost_OrderOfDoorbellAndBlueFlame(t *testing.T) {
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	each(t, m, func() {
		p.qp.Post(even, false, []WQE{p.write(2)})
		p.qp.Post(even, true, []WQE{p.write(2)})
	})
	assert.Equal(t, []uint16{0, 1}, p.indexes)
}

// A read takes longer than the write after it, and still completes first.
func TestComplete_ReadBeforeWrite(t *testing.T) {
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	read := p.write(4096)
	read.Kind = Fetch
	each(t, m, func() {
		p.qp.Post(even, true, []WQE{read})
		p.qp.Post(even, true, []WQE{p.write(2)})
	})
	assert.Equal(t, []uint16{0, 1}, p.indexes)
	assert.LessOrEqual(t, p.visible[0], p.visible[1])
}

// For any mix of operations, completions of a QP arrive in order, each once, and no work request remains in
// flight.
func TestComplete_InOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 60 {
		m := newModel(t, round())
		page := m.NewPage()
		ports := []*port{newPort(t, m, page), newPort(t, m, page), newPort(t, m, m.NewPage())}
		var steps []Step
		for i, p := range ports {
			left := 20
			steps = append(steps, func() (bool, error) {
				p.postAny(random, uint32(even+i*512))
				left--
				return left == 0, nil
			})
		}
		_, err := m.Run(random.Uint64(), steps)
		require.NoError(t, err)
		assert.Zero(t, m.inFlight)
		for _, p := range ports {
			require.Len(t, p.indexes, int(p.next))
			for i, index := range p.indexes {
				require.Equal(t, uint16(i), index)
			}
			require.IsNonDecreasing(t, p.visible)
		}
	}
}

// postAny posts a list of random work requests.
func (p *port) postAny(random *rand.Rand, register uint32) {
	list := make([]WQE, 1+random.IntN(12))
	for i := range list {
		switch random.IntN(3) {
		case 0:
			list[i] = p.write(random.IntN(100))
		case 1:
			list[i] = p.gather(Span{uint64(random.IntN(1 << 12)), uint32(1 + random.IntN(5000))})
		case 2:
			list[i] = p.write(random.IntN(5000))
			list[i].Kind = Fetch
		}
		list[i].Blocks = 1 + random.IntN(2)
	}
	p.qp.Post(register, len(list) == 1 && random.IntN(2) == 0, list)
}

// The clock of a thread is the exact sum of its costs, also in a long run.
func TestClock_NoDrift(t *testing.T) {
	params := ConnectX4()
	m := newModel(t, params)
	p := newPort(t, m, m.NewPage())
	const rounds = 3000
	polls, left := 0, rounds
	ran, err := m.Run(5, []Step{func() (bool, error) {
		if len(p.visible) == int(p.consumed) && p.consumed == uint32(p.next) && left > 0 {
			left--
			p.qp.Post(even, true, []WQE{p.write(2)})
			return false, nil
		}
		polls++
		p.poll()
		return left == 0 && p.consumed == uint32(p.next), nil
	}})
	require.NoError(t, err)
	post := params.PostCall + params.WQEBuild + params.DoorbellRecord + params.RegisterWrite
	assert.Equal(t, rounds*(post+params.CQERead)+Time(polls)*params.PollCall, ran[0].End-ran[0].Begin)
	assert.Equal(t, uint64(polls), m.Stats().Polls)
	assert.Equal(t, uint64(rounds), m.Stats().Completions)
}

// A poll returns only completions that are visible at its time.
func TestPoll_NotBeforeVisible(t *testing.T) {
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	var seen Time
	_, err := m.Run(1, []Step{func() (bool, error) {
		if p.next == 0 {
			p.qp.Post(even, true, []WQE{p.write(2)})
			return false, nil
		}
		if p.poll() == 0 {
			return false, nil
		}
		seen = m.now
		return true, nil
	}})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, seen, p.visible[0])
	assert.Less(t, seen, p.visible[0]+m.params.PollCall, "at most one poll later")
}

// Only one thread at a time polls a shared queue, for the time of reading its completions.
func TestPoll_SharedCQ(t *testing.T) {
	m := newModel(t, round())
	var consumed uint32
	cq := m.NewCQ(true, func() uint32 { return consumed })
	var looked [2]Time
	poll := func(i, n int) func() {
		return func() {
			at(m, 2*Microsecond+Time(i))
			cq.Poll()
			looked[i] = m.now
			consumed += uint32(n)
		}
	}
	ran := each(t, m, poll(0, 10), poll(1, 1))
	first := 2*Microsecond + 5*Nanosecond + 3*Nanosecond
	assert.Equal(t, first, looked[0])
	assert.Equal(t, first+70*Nanosecond, ran[0].End)
	assert.Equal(t, ran[0].End+50*Nanosecond, looked[1], "the lock is transferred")
	assert.Equal(t, looked[1]+50*Nanosecond+7*Nanosecond, ran[1].End, "the state of the queue is transferred")
}

// A thread that polls for another one moves the tail of its queue to its core while it owns the lock, and
// reads two lines that the post has written; the next post of the other thread moves the tail back.
func TestPoll_ForAnother(t *testing.T) {
	for name, c := range map[string]struct {
		poller     int
		poll, post Time // in addition to the normal costs
	}{"own": {0, 0, 0}, "another": {1, 3 * 50, 50}} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, round())
			p := newPort(t, m, m.NewPage())
			var post, poll Time
			steps := [2]func(){}
			first := func() { p.qp.Post(even, true, []WQE{p.write(2)}) }
			look := func() {
				at(m, 10*Microsecond)
				require.Equal(t, 1, p.poll())
				m.current.settle()
				poll = m.now - 10*Microsecond
			}
			again := func() {
				at(m, 20*Microsecond)
				p.qp.Post(even, true, []WQE{p.write(2)})
				post = m.now - 20*Microsecond
			}
			if c.poller == 0 {
				steps = [2]func(){func() { first(); look(); again() }, func() {}}
			} else {
				steps = [2]func(){func() { first(); again() }, look}
			}
			each(t, m, steps[0], steps[1])
			assert.Equal(t, (5+7+c.poll)*Nanosecond, poll)
			assert.Equal(t, (postCPU+c.post)*Nanosecond, post)
		})
	}
}

// QPs that share a register use its lock; QPs with a separate register do not.
func TestPost_Locks(t *testing.T) {
	for name, c := range map[string]struct {
		queue, register bool
		want            Time
	}{
		"none":     {false, false, postCPU},
		"queue":    {true, false, postCPU + 3},
		"register": {false, true, postCPU + 3},
		"both":     {true, true, postCPU + 6},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, round())
			p := &port{t: t, m: m}
			p.qp = m.NewQP(QPConfig{Page: m.NewPage(), Sink: p, QueueLocked: c.queue, RegisterLocked: c.register})
			ran := each(t, m, func() { p.qp.Post(even, true, []WQE{p.write(2)}) })
			assert.Equal(t, c.want*Nanosecond, ran[0].End-ran[0].Begin)
		})
	}
}

func TestPost_SharedRegister(t *testing.T) {
	m := newModel(t, round())
	page := m.NewPage()
	var ports [2]*port
	for i := range ports {
		ports[i] = &port{t: t, m: m}
		ports[i].qp = m.NewQP(QPConfig{Page: page, Sink: ports[i], RegisterLocked: true})
	}
	post := func(i int) func() {
		return func() { at(m, 2*Microsecond); ports[i].qp.Post(even, true, []WQE{ports[i].write(2)}) }
	}
	ran := each(t, m, post(0), post(1))
	ends := []Time{ran[0].End, ran[1].End}
	first := 2*Microsecond + (postCPU+3)*Nanosecond
	assert.ElementsMatch(t, []Time{first, first + (50+100)*Nanosecond}, ends, "after a lock transfer and a write")
	assert.Equal(t, (100+50+3)*Nanosecond, m.Stats().RegisterLockWait, "the write of the other thread and a lock transfer")
}

// The state of a QP that threads share is transferred between cores.
func TestPost_SharedQP(t *testing.T) {
	m := newModel(t, round())
	p := &port{t: t, m: m}
	p.qp = m.NewQP(QPConfig{Page: m.NewPage(), Sink: p, QueueLocked: true})
	post := func(from Time) func() {
		return func() { at(m, from); p.qp.Post(even, true, []WQE{p.write(2)}) }
	}
	ran := each(t, m, post(2*Microsecond), post(5*Microsecond))
	assert.Equal(t, (postCPU+3)*Nanosecond, ran[0].End-2*Microsecond)
	assert.Equal(t, (postCPU+3+50+2*50)*Nanosecond, ran[1].End-5*Microsecond)
}

// Outside of a step everything completes at once: set-up takes no virtual time.
func TestPost_OutsideOfSteps(t *testing.T) {
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	unsignaled := p.write(2)
	unsignaled.Signaled = false
	p.qp.Post(even, true, []WQE{unsignaled, p.write(2)})
	assert.Equal(t, []uint16{1}, p.indexes)
	assert.Equal(t, 1, p.poll())
	assert.Zero(t, m.Now())
	assert.Zero(t, m.Stats().Messages)
}

var errStep = errors.New("step")

func TestRun_Errors(t *testing.T) {
	t.Run("of a step", func(t *testing.T) {
		m := newModel(t, round())
		p := newPort(t, m, m.NewPage())
		forever := func() (bool, error) { p.poll(); return false, nil }
		_, err := m.Run(1, []Step{forever, func() (bool, error) { return false, errStep }})
		require.ErrorIs(t, err, errStep)
		assert.ErrorContains(t, err, "thread 1")
	})
	t.Run("nothing can arrive", func(t *testing.T) {
		m := newModel(t, round())
		p := newPort(t, m, m.NewPage())
		_, err := m.Run(1, []Step{func() (bool, error) { p.poll(); return false, nil }})
		require.ErrorIs(t, err, ErrStalled)
	})
	t.Run("inside of a step", func(t *testing.T) {
		m := newModel(t, round())
		_, err := m.Run(1, []Step{func() (bool, error) { _, err := m.Run(1, nil); return true, err }})
		require.Error(t, err)
	})
	t.Run("bad parameters", func(t *testing.T) {
		p := round()
		p.Rails = 0
		_, err := New(p)
		require.ErrorContains(t, err, "Rails")
		p = round()
		p.CQEWrite = -1
		_, err = New(p)
		require.ErrorContains(t, err, "negative")
	})
}

// A step without actions takes time, so that clocks advance.
func TestRun_EmptyStep(t *testing.T) {
	m := newModel(t, round())
	left := 3
	ran, err := m.Run(1, []Step{func() (bool, error) { left--; return left == 0, nil }})
	require.NoError(t, err)
	assert.Equal(t, 30*Nanosecond, ran[0].End-ran[0].Begin)
}

func TestRun_Again(t *testing.T) {
	m := newModel(t, round())
	first := each(t, m, func() { at(m, 2*Microsecond) })
	second := each(t, m, func() {})
	assert.GreaterOrEqual(t, second[0].Begin, first[0].End)
}

// A thread is charged for a completion before it handles it, and once, whether the driver releases entries before or
// after it handles them.
func TestHandled(t *testing.T) {
	const handle = 11 * Nanosecond
	for name, late := range map[string]bool{"released early": false, "released late": true} {
		m := newModel(t, round())
		p := newPort(t, m, m.NewPage())
		each(t, m, func() {
			for range 3 {
				at(m, m.Now()+10*Microsecond)
				p.qp.Post(even, true, []WQE{p.write(2)})
			}
			at(m, 100*Microsecond)
			p.cq.Poll()
			found := uint32(len(p.visible))
			if !late {
				p.consumed = found
			}
			m.Handled(handle)
			m.Handled(handle)
			handled := m.Now() - 100*Microsecond
			p.consumed = found
			p.cq.Poll()
			m.Spend(0)
			took := m.Now() - 100*Microsecond
			assert.Equal(t, (5+3*7+5)*Nanosecond+2*handle, took, name)
			if late { // a completion that is not handled is charged with the next poll
				assert.Equal(t, (5+2*7)*Nanosecond+2*handle, handled, name)
			} else {
				assert.Equal(t, (5+3*7)*Nanosecond+2*handle, handled, name)
			}
		})
		assert.Equal(t, uint64(3), m.Stats().Completions, name)
	}
}

// Polls outside of a run, and the completions that they return, take no time.
func TestPoll_CompletionsOfOthers(t *testing.T) {
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	p.qp.Post(even, true, []WQE{p.write(2)})
	p.poll()
	each(t, m, func() {
		begin := m.Now()
		p.poll()
		m.Spend(0)
		assert.Equal(t, 5*Nanosecond, m.Now()-begin)
	})
	assert.Zero(t, m.Stats().Completions)
}

// The time of the software for a post replaces that of the call, also if the doorbell follows later. A refused attempt
// takes no time.
func TestBeforePost(t *testing.T) {
	const (
		computes = 50 * Nanosecond
		rest     = (20 + 30 + 100) * Nanosecond
	)
	m := newModel(t, round())
	p := newPort(t, m, m.NewPage())
	each(t, m, func() {
		spent := func(f func()) Time {
			at(m, m.Now()+10*Microsecond) // so that no write waits for another one
			begin := m.Now()
			f()
			return m.Now() - begin
		}
		post := func() { p.qp.Post(even, true, []WQE{p.write(2)}) }
		assert.Equal(t, computes+rest, spent(func() { m.BeforePost(computes); post(); m.AfterPost(true) }), "rings")
		assert.Zero(t, spent(func() { m.BeforePost(computes); m.AfterPost(false) }), "refused")
		assert.Equal(t, 10*Nanosecond+rest, spent(post), "post after a refused one")
		assert.Equal(t, computes, spent(func() { m.BeforePost(computes); m.AfterPost(true) }), "post with a later doorbell")
		assert.Equal(t, rest, spent(post), "the doorbell")
		assert.Equal(t, 10*Nanosecond+rest, spent(post), "another post")
		assert.Equal(t, 10*Nanosecond+rest, spent(func() { m.BeforePost(0); post(); m.AfterPost(true) }), "unknown time of the software")
	})
}
