package ucttest

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// Harness is what a transport tells the suite about itself. OpenMD and Transport
// are required; the suite does the rest through the contract.
type Harness struct {
	// OpenMD opens a memory domain of its own on every call; the suite closes it.
	OpenMD func() (uct.MD, error)
	// SharedMD makes both ifaces of a pair share one memory domain, for a
	// transport or fabric that stays inside a device. Otherwise each side has its
	// own.
	SharedMD bool
	// Transport names what to open. Device may be empty: the first that the MD
	// lists for Transport.
	Transport, Device string
	// Config makes IfaceParams.Config from the queue depths that a check asks
	// for. nil opens ifaces without configuration.
	Config func(o Options) any
	// StartPeer starts another process (see [ExecPeer]) that has opened the same
	// transport. nil if a peer cannot be in another process; checks that need
	// one are then skipped.
	StartPeer func() (*Peer, error)
	// OneSided is set when put, get, atomics and their flush complete while the
	// target's process is stopped.
	OneSided bool
	// OneSidedAM is set when active messages, as many as the target has room for, and
	// their flush complete while the target's process is stopped too.
	OneSidedAM bool
	// OneGoroutine is set when ifaces that send messages to each other must be
	// driven by the same goroutine; the check that sends from another is then
	// skipped. Atomics are tried by many goroutines all the same.
	OneGoroutine bool
	// Engine is set when goroutines outside the transport's control move the bytes,
	// such as those of crypto/tls, which allocate. The check of allocations, which
	// counts those of the whole process, is then skipped, and the longest loops are
	// cut, since each operation waits for several goroutines.
	Engine bool
	// Except names checks, or groups of them ("revoke"), that are left out, for a run of the suite that adds to
	// another one over the same transport.
	Except []string
	// Budget is the number of idle rounds of Progress after which the suite says
	// that nothing will happen any more. Events that wait for a timer or the kernel
	// (a peer's death) get 8 times as many. 0 means 1<<20, and not before 30 s have passed,
	// since other threads may be at work on a busy machine. A wait in which something happens
	// in each round ends after 64 times Budget rounds. After the first check that fails, the
	// waits of the others end by their rounds only, within seconds, so that a transport with
	// many faults has its report before the time limit of go test.
	Budget int
	// EventTimeout is how long an armed event may take to show; 0 means 30 s, which only a
	// lost one takes, and 1 s after the first check that fails.
	EventTimeout time.Duration
	// Watchdog is when a check that has not ended fails, alone: it is abandoned, and the
	// next one runs. 0 means testenv.Watchdog.
	Watchdog time.Duration

	shortWaits bool // a check has failed: waits of the others are short
}

// Options are the properties of an iface that checks vary.
type Options struct {
	// TxDepth and RxDepth are the lengths of the send and receive queues in
	// messages. The suite asks for tiny ones; a transport rounds up to what it
	// can do. 0 means the transport's default.
	TxDepth, RxDepth int
	// PeerDies: the check kills its peer and waits until the transport finds out. One
	// that only time tells may take a short time for this check, and a long one for the
	// others, whose peers live and may be slow.
	PeerDies bool
}

// checkT is the part of testing.TB that checks use.
type checkT interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	FailNow()
	Failed() bool
	Skipf(format string, args ...any)
	Cleanup(f func())
}

const (
	defaultBudget   = 1 << 20
	timerBudget     = 8  // times Budget, for events of timers and of the kernel
	busyBudget      = 64 // times Budget, for rounds in which something happens
	defaultWatchdog = testenv.Watchdog
	defaultEvent    = 30 * time.Second
	shortEvent      = time.Second
)

// watchdog is how long a check may take.
func (h *Harness) watchdog() time.Duration {
	if h.Watchdog > 0 {
		return h.Watchdog
	}
	return defaultWatchdog
}

// eventTimeout in milliseconds, as poll takes it.
func (h *Harness) eventTimeout() int {
	if h.EventTimeout > 0 {
		return int(h.EventTimeout.Milliseconds())
	}
	if h.shortWaits {
		return int(shortEvent.Milliseconds())
	}
	return int(defaultEvent.Milliseconds())
}

// leavesOut reports whether a check is left out.
func (h *Harness) leavesOut(name string) bool {
	group, _, _ := strings.Cut(name, "/")
	return slices.Contains(h.Except, name) || slices.Contains(h.Except, group)
}

// rounds is how many rounds of n a loop over many operations makes.
func (h *Harness) rounds(n int) int {
	if h.Engine {
		n /= 10
	}
	return testenv.Rounds(n, 10*n)
}

// patienceTime is the least time that idle rounds are given, until a check has failed.
const patienceTime = 30 * time.Second

// patience counts the rounds of a wait.
type patience struct {
	budget int
	least  time.Duration
	idle   int       // rounds in a row in which nothing happened
	busy   int       // rounds in which something happened
	limit  time.Time // zero until the budget is spent
}

func (h *Harness) patience(times int) patience {
	w := patience{budget: h.budget() * times}
	if h.Budget == 0 && !h.shortWaits {
		w.least = patienceTime
	}
	return w
}

// spent counts a round that did n things and reports whether to give up.
func (w *patience) spent(n int) bool {
	if n > 0 {
		w.idle, w.limit = 0, time.Time{}
		w.busy++
		return w.busy >= w.budget*busyBudget
	}
	w.idle++
	switch {
	case w.idle < w.budget:
		return false
	case w.limit.IsZero():
		w.limit = time.Now().Add(w.least)
	}
	return !time.Now().Before(w.limit)
}

// yield lets other goroutines run.
func (w *patience) yield() { yieldIdle(w.idle) }

// idleYields is how many idle rounds follow each other before a pause, which is idlePause or
// longer.
const (
	idleYields = 64
	idlePause  = 20 * time.Microsecond
)

// yieldIdle lets other goroutines run after the idle round that has that number. As long as
// a goroutine is ready for each processor the runtime does not look for what has come by
// descriptors, which wakes a device's goroutine: sysmon does so, every 10 ms. So now and then
// there is a pause, which also gives the processor to other processes, such as the peer.
func yieldIdle(number int) {
	if number%idleYields == idleYields-1 {
		time.Sleep(idlePause)
		return
	}
	runtime.Gosched()
}

func (h *Harness) budget() int {
	if h.Budget > 0 {
		return h.Budget
	}
	return defaultBudget
}

func (h *Harness) config(o Options) any {
	if h.Config == nil {
		return nil
	}
	return h.Config(o)
}
