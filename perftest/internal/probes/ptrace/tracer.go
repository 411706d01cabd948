package ptrace

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tracer drives one traced process. All its methods but kill belong to the thread
// that started the process.
type tracer struct {
	pid      int
	threads  map[int]*thread
	exited   bool
	maxSteps int
	over     func(pc uint64) bool // nil without one

	frozen  bool // threads that stop are left so: a window is being recorded
	trapPC  uint64
	slide   uint64 // what is added to the child's addresses
	steps   []Step
	text    map[uint64]instruction // by address
	pending []pendingSignal        // held back from the stepped thread
	returns map[uint64]bool        // the addresses to which runOver has run
	trapAt  uint64                 // where runTo has put a trap instruction; 0 without one

	recorded int              // the thread of the window
	replaced [trapLen]byte    // the text at trapAt before
	early    *unix.WaitStatus // a stop of recorded that another call than waitStepped has received
}

// thread is a thread of the process that has been seen.
type thread struct {
	stopped  bool // by us, or newborn and left so
	stopping bool // told to stop: a SIGSTOP is on its way
}

type pendingSignal struct {
	tid int
	sig unix.Signal
}

func newTracer(pid int, p Program) *tracer {
	if p.MaxSteps <= 0 {
		p.MaxSteps = DefaultMaxSteps
	}
	return &tracer{
		pid: pid, maxSteps: p.MaxSteps, over: p.Over,
		threads: map[int]*thread{pid: {}},
		text:    map[uint64]instruction{},
		returns: map[uint64]bool{},
	}
}

// attach waits for the stop at the end of exec and sets what to be told of.
func (t *tracer) attach() error {
	st, err := t.wait(t.pid)
	if err != nil {
		return err
	}
	if !st.Stopped() {
		t.exited = true
		return fmt.Errorf("%w: %w", ErrForbidden, &ExitError{st})
	}
	opts := unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACECLONE
	if err := unix.PtraceSetOptions(t.pid, opts); err != nil {
		return os.NewSyscallError("ptrace setoptions", err)
	}
	return t.cont(t.pid, 0)
}

// run serves the process until it has exited.
func (t *tracer) run(f func(Window) error) error {
	for {
		tid, st, err := t.waitAny()
		if err != nil {
			return err
		}
		if isTrap(st) {
			if err := t.window(tid, f); err != nil {
				return err
			}
			continue
		}
		if err := t.event(tid, st); err != nil {
			return err
		}
		if tid == t.pid && t.exited {
			return exitError(st)
		}
	}
}

func exitError(st unix.WaitStatus) error {
	if st.Exited() && st.ExitStatus() == 0 {
		return nil
	}
	return &ExitError{st}
}

// isTrap reports a mark or the end of a step.
func isTrap(st unix.WaitStatus) bool {
	return st.Stopped() && st.StopSignal() == unix.SIGTRAP && st.TrapCause() == 0
}

// event deals with everything that is not a trap, and lets the thread go on unless
// it was told to stop.
func (t *tracer) event(tid int, st unix.WaitStatus) error {
	if !st.Stopped() {
		delete(t.threads, tid)
		t.exited = t.exited || tid == t.pid
		return nil
	}
	th, known := t.threads[tid]
	if !known { // a newborn thread, reported before the clone that made it
		th = &thread{stopping: true}
		t.threads[tid] = th
	}
	switch sig := st.StopSignal(); {
	case sig == unix.SIGSTOP && th.stopping:
		th.stopping = false
		if t.frozen {
			th.stopped = true
			return nil
		}
		return t.cont(tid, 0)
	case sig == unix.SIGTRAP && st.TrapCause() == unix.PTRACE_EVENT_CLONE:
		if err := t.noteClone(tid); err != nil {
			return err
		}
		return t.cont(tid, 0)
	case sig == unix.SIGTRAP && st.TrapCause() == 0:
		return t.returned(tid)
	default:
		return t.cont(tid, sig)
	}
}

// noteClone records the thread that tid has just made; it starts with a SIGSTOP.
func (t *tracer) noteClone(tid int) error {
	child, err := unix.PtraceGetEventMsg(tid)
	if err != nil {
		return os.NewSyscallError("ptrace geteventmsg", err)
	}
	if _, seen := t.threads[int(child)]; !seen {
		t.threads[int(child)] = &thread{stopping: true}
	}
	return nil
}

// cont lets a thread run, with a signal or 0. A thread that has just been killed
// is not an error: its end is reported by wait.
func (t *tracer) cont(tid int, sig unix.Signal) error {
	err := unix.PtraceCont(tid, int(sig))
	if err != nil && err != unix.ESRCH {
		return os.NewSyscallError("ptrace cont", err)
	}
	return nil
}

// freeze stops every thread but the one that is to be stepped.
func (t *tracer) freeze(except int) error {
	t.frozen = true
	for tid, th := range t.threads {
		if tid == except || th.stopped || th.stopping {
			continue
		}
		switch err := unix.Tgkill(t.pid, tid, unix.SIGSTOP); err {
		case nil:
			th.stopping = true
		case unix.ESRCH:
			delete(t.threads, tid)
		default:
			return os.NewSyscallError("tgkill", err)
		}
	}
	for t.anyStopping(except) {
		tid, st, err := t.waitAny()
		if err != nil {
			return err
		}
		if err := t.event(tid, st); err != nil {
			return err
		}
		if t.exited {
			return exitError(st)
		}
	}
	return nil
}

func (t *tracer) anyStopping(except int) bool {
	for tid, th := range t.threads {
		if tid != except && th.stopping {
			return true
		}
	}
	return false
}

// thaw lets the threads run that freeze stopped.
func (t *tracer) thaw() error {
	if !t.frozen {
		return nil
	}
	t.frozen = false
	for tid, th := range t.threads {
		if !th.stopped {
			continue
		}
		th.stopped = false
		if err := t.cont(tid, 0); err != nil {
			return err
		}
	}
	return nil
}

// waitAny waits for any thread of the process.
func (t *tracer) waitAny() (int, unix.WaitStatus, error) {
	for {
		var st unix.WaitStatus
		tid, err := unix.Wait4(-t.pid, &st, unix.WALL, nil)
		if err == nil {
			return tid, st, nil
		}
		if err != unix.EINTR {
			return 0, 0, os.NewSyscallError("wait4", err)
		}
	}
}

// waitStep is waitAny for a wait that takes microseconds.
func (t *tracer) waitStep() (int, unix.WaitStatus, error) { return waitStep(t.pid) }

// wait waits for one thread.
func (t *tracer) wait(tid int) (unix.WaitStatus, error) {
	for {
		var st unix.WaitStatus
		_, err := unix.Wait4(tid, &st, unix.WALL, nil)
		if err == nil {
			return st, nil
		}
		if err != unix.EINTR {
			return 0, os.NewSyscallError("wait4", err)
		}
	}
}

func (t *tracer) alive() bool { return !t.exited }

// kill ends the process. Any goroutine, until Run returns.
func (t *tracer) kill() {
	// ESRCH means that it is dead already.
	_ = unix.Kill(t.pid, unix.SIGKILL)
}

// reap waits until the killed process is gone.
func (t *tracer) reap() {
	for !t.exited {
		tid, st, err := t.waitAny()
		if err != nil {
			return // ECHILD: nothing is left
		}
		// A thread that was stopped when the signal came may report that stop
		// first; it needs no answer.
		if !st.Stopped() && tid == t.pid {
			t.exited = true
		}
	}
}

var errNoBegin = errors.New("traced child: End without Begin")
