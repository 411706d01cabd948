package timing

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// Step is the work of a thread between two readings of the clock: one call of post or of poll. done ends the thread.
type Step func() (done bool, err error)

// ErrStalled is returned by Run if the threads poll for completions that cannot arrive.
var ErrStalled = errors.New("timing: nothing is posted, nothing is in flight, and threads go on")

const (
	// startSpread is the time within which threads start, so that they do not run in lockstep.
	startSpread = Microsecond
	// stallSteps is the number of consecutive steps without effect while nothing is in flight: far more than any
	// protocol between threads needs.
	stallSteps = 1 << 16
)

// Thread is one thread of the run, on a core of its own.
type Thread struct {
	m       *Model
	id      int
	step    Step
	yield   func(struct{}) bool
	resume  func() (struct{}, bool)
	stop    func()
	stopped bool // the run is over: all steps take no time
	done    bool
	process *Process // see Model.Enter
	free    bool     // see Model.Free

	polling  *CQ  // queue of the poll that is not accounted for yet
	polled   *CQ  // of the latest poll
	given    bool // the driver has released entries of that poll
	software Time // see Model.BeforePost
	ahead    bool // see Model.AfterPost
	ran      Ran
}

// Ran contains the start and the end of a thread.
type Ran struct{ Begin, End Time }

// Run runs one thread for each of steps, all on the caller's goroutine, and returns
// their start and end times. seed decides when each thread starts, within a microsecond, and
// Params.Jitter. The steps may use objects of the model's devices; a post or poll inside of a step
// returns when the clock of the thread has reached its end. Run completes work that is in flight
// when the last thread ends.
//
// The first error of a step ends the run, as does ErrStalled; the caller must not use the model
// after that.
func (m *Model) Run(seed uint64, steps []Step) ([]Ran, error) {
	if m.inRun {
		return nil, errors.New("timing: Run inside of a step")
	}
	m.inRun = true
	defer func() { m.inRun = false }()
	random := rand.New(rand.NewPCG(seed, 0))
	m.random = rand.New(rand.NewPCG(seed, 1))
	threads := make([]*Thread, len(steps))
	for i, step := range steps {
		th := &Thread{m: m, id: i, step: step}
		th.resume, th.stop = iter.Pull(th.life)
		threads[i] = th
		th.ran.Begin = m.now + Time(random.Int64N(int64(startSpread)))
		m.at(th.ran.Begin, th.run)
	}
	for m.err == nil && m.next() {
	}
	if m.err == nil && slices.ContainsFunc(threads, func(th *Thread) bool { return !th.done }) {
		m.err = ErrStalled
	}
	ran := make([]Ran, len(threads))
	for i, th := range threads {
		th.stop()
		ran[i] = th.ran
	}
	return ran, m.err
}

// life runs the thread: steps until it is done.
func (th *Thread) life(yield func(struct{}) bool) {
	th.yield = yield
	m := th.m
	for !th.stopped && m.err == nil {
		before, marks := m.now, m.marks
		done, err := th.step()
		th.settle()
		if m.now == before && !th.stopped {
			th.spend(m.call(m.params.PostCall))
		}
		if err != nil && m.err == nil {
			m.err = fmt.Errorf("thread %d: %w", th.id, err)
		}
		if done || err != nil {
			break
		}
		m.watchStall(marks)
	}
	th.ran.End = m.now
	th.done = true
}

// watchStall ends the run after too many steps without effect; marks is the number of effects before the last step.
func (m *Model) watchStall(marks uint64) {
	if m.marks != marks || m.inFlight > 0 {
		m.idleSteps = 0
		return
	}
	if m.idleSteps++; m.idleSteps == stallSteps && m.err == nil {
		m.err = ErrStalled
	}
}

// run continues the thread until it waits.
func (th *Thread) run() {
	th.m.current = th
	th.resume()
	th.m.current = nil
}

// pause yields to the other threads. To continue the thread, schedule run.
func (th *Thread) pause() {
	if th.stopped {
		return
	}
	if !th.yield(struct{}{}) {
		th.stopped = true
	}
}

// until waits until time t.
func (th *Thread) until(t Time) {
	m := th.m
	switch {
	case th.stopped || th.free || t <= m.now:
	case m.quietUntil(t): // no other thread would run before it
		m.now = t
	default:
		m.at(t, th.run)
		th.pause()
	}
}

// spend advances the thread's clock by d.
func (th *Thread) spend(d Time) { th.until(th.m.now + d) }

// settle accounts for a poll after the driver has consumed its completions: the device sees the
// consumer index move.
func (th *Thread) settle() {
	c := th.polling
	if c == nil {
		return
	}
	th.polling = nil
	th.given = c.account(th)
	c.lock.release(th)
}
