package ucttest

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// Harness describes a transport to the suite. OpenMD and Transport
// are required.
type Harness struct {
	// OpenMD opens a new memory domain on every call; the suite closes it.
	OpenMD func() (uct.MD, error)
	// SharedMD makes both ifaces of a pair share one memory domain, for a
	// transport or fabric within a device. Otherwise each side has its
	// own.
	SharedMD bool
	// Transport and Device are the resource to open. If Device is empty, it is the first one that the MD
	// lists for Transport.
	Transport, Device string
	// Config makes IfaceParams.Config from the options of a check, such as
	// queue depths. With nil, ifaces are opened without configuration.
	Config func(o Options) any
	// StartPeer starts another process (see [ExecPeer]) that has opened the same
	// transport. nil if a peer cannot be in another process; checks that need
	// one are then skipped.
	StartPeer func() (*Peer, error)
	// OneSided means that put, get, atomics and their flush complete while the
	// target's process is stopped.
	OneSided bool
	// OneSidedAM means that active messages, as many as the target has room for, and
	// their flush complete while the target's process is stopped.
	OneSidedAM bool
	// OneGoroutine means that the same goroutine must drive ifaces that send messages to each other.
	// The check that sends from another goroutine is then
	// skipped. Atomics are nevertheless checked with many goroutines.
	OneGoroutine bool
	// Engine means that goroutines outside the transport's control transfer the data,
	// such as those of crypto/tls, which allocate. The check of allocations, which
	// counts those of the whole process, is then skipped, and the longest loops are
	// shorter, because each operation waits for several goroutines.
	Engine bool
	// Except lists checks, or groups of them ("revoke"), to omit, for a run of the suite in addition to
	// another one over the same transport.
	Except []string
	// Budget is the number of consecutive idle rounds of Progress after which a wait
	// fails. Waits for a timer or the kernel
	// (a peer's death) have 8 times as many. 0 means 1<<20 rounds and at least 30 s,
	// because other threads may have work to do on a busy machine. A wait without idle rounds
	// fails after 64 times Budget rounds. After the first check that fails, there is no minimum time, so that
	// waits of later checks fail within seconds, and the report for a transport with
	// many faults is complete before the time limit of go test.
	Budget int
	// EventTimeout is the maximum time until an armed event is raised. 0 means 30 s, and 1 s after the first check that
	// fails.
	EventTimeout time.Duration
	// Watchdog is the time after which a check that has not returned fails; then the
	// next one runs. 0 means testenv.Watchdog.
	Watchdog time.Duration

	shortWaits bool // a check has failed: waits of the others are short
}

// Options are the properties of an iface that checks vary.
type Options struct {
	// TxDepth and RxDepth are the lengths of the send and receive queues in
	// messages. The suite uses very short queues; a transport rounds up to its minimum.
	// 0 means the transport's default.
	TxDepth, RxDepth int
	// PeerDies means that the check kills its peer and waits until the transport detects it. A transport
	// that detects it by a timeout should have a short timeout for this check, and a long one for the
	// others, whose peers are alive and may be slow.
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

// watchdog returns the maximum duration of a check.
func (h *Harness) watchdog() time.Duration {
	if h.Watchdog > 0 {
		return h.Watchdog
	}
	return defaultWatchdog
}

// eventTimeout returns the timeout for poll(2), in milliseconds.
func (h *Harness) eventTimeout() int {
	if h.EventTimeout > 0 {
		return int(h.EventTimeout.Milliseconds())
	}
	if h.shortWaits {
		return int(shortEvent.Milliseconds())
	}
	return int(defaultEvent.Milliseconds())
}

// leavesOut reports whether a check is omitted.
func (h *Harness) leavesOut(name string) bool {
	group, _, _ := strings.Cut(name, "/")
	return slices.Contains(h.Except, name) || slices.Contains(h.Except, group)
}

// rounds returns the number of rounds of a loop of n rounds over many operations.
func (h *Harness) rounds(n int) int {
	if h.Engine {
		n /= 10
	}
	return testenv.Rounds(n, 10*n)
}

// patienceTime is the minimum duration of the idle rounds of a wait that fails, until a check has failed.
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

// spent counts a round in which n events happened, and reports whether the wait has failed.
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

// idleYields is the number of consecutive idle rounds before a pause of idlePause or
// longer.
const (
	idleYields = 64
	idlePause  = 20 * time.Microsecond
)

// yieldIdle yields after the idle round with this number. While each CPU has a ready goroutine,
// the runtime polls descriptors, whose events wake a device's goroutine, only every 10 ms, by sysmon.
// So yieldIdle pauses from time to time, in which other processes, such as the peer, can use the
// CPU too.
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
