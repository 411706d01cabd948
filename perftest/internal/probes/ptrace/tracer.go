package ptrace

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tracer controls one traced process. All methods except kill must be called on the thread that
// started the process.
type tracer struct {
	pid      int
	threads  map[int]*thread
	exited   bool
	maxSteps int
	over     func(pc uint64) bool // nil without one

	frozen  bool // threads that stop remain stopped: a window is being recorded
	trapPC  uint64
	slide   uint64 // offset of the child's addresses
	steps   []Step
	text    map[uint64]instruction // by address
	pending []pendingSignal        // signals delayed for the stepped thread
	returns map[uint64]bool        // addresses at which runOver has set a trap
	trapAt  uint64                 // address of a trap instruction set by runTo; 0 if there is none

	recorded int              // thread of the window
	replaced [trapLen]byte    // original text at trapAt
	early    *unix.WaitStatus // stop of recorded received by another call than waitStepped
}

// thread is a known thread of the process.
type thread struct {
	stopped  bool // by the tracer, or since its creation
	stopping bool // a SIGSTOP has been sent
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

// attach waits for the stop at the end of exec and selects the reported events.
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

// run handles events until the process has exited.
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

// event handles all stops except traps, and continues the thread unless a SIGSTOP has been sent.
func (t *tracer) event(tid int, st unix.WaitStatus) error {
	if !st.Stopped() {
		delete(t.threads, tid)
		t.exited = t.exited || tid == t.pid
		return nil
	}
	th, known := t.threads[tid]
	if !known { // a new thread, reported before the clone that created it
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

// noteClone records a thread that tid has just created; it starts with a SIGSTOP.
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

// cont continues a thread, with a signal or 0. If the thread has just been killed, cont returns no
// error: wait reports the end.
func (t *tracer) cont(tid int, sig unix.Signal) error {
	err := unix.PtraceCont(tid, int(sig))
	if err != nil && err != unix.ESRCH {
		return os.NewSyscallError("ptrace cont", err)
	}
	return nil
}

// freeze stops every thread except the one to step.
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

// thaw continues the threads that freeze stopped.
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

// waitStep is waitAny for a wait of microseconds.
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

// kill kills the process. Any goroutine may call it, until Run returns.
func (t *tracer) kill() {
	// ESRCH means that it is already dead.
	_ = unix.Kill(t.pid, unix.SIGKILL)
}

// reap waits until the killed process has exited.
func (t *tracer) reap() {
	for !t.exited {
		tid, st, err := t.waitAny()
		if err != nil {
			return // ECHILD: no thread is left
		}
		// A thread that was stopped when the signal was sent may report that stop first; it needs
		// no reply.
		if !st.Stopped() && tid == t.pid {
			t.exited = true
		}
	}
}

var errNoBegin = errors.New("traced child: End without Begin")
