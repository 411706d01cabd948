package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errFaulted ends a window whose thread raised a fault: the child then dies of it, with a traceback
// by its runtime.
var errFaulted = errors.New("fault")

// window handles a thread that stopped at a mark: it steps to the end mark, calls f and continues
// all threads.
func (t *tracer) window(tid int, f func(Window) error) error {
	var regs registers
	if err := regs.load(tid); err != nil {
		return os.NewSyscallError("ptrace getregs", err)
	}
	if pc := regs.trapPC(); pc != t.trapPC && t.returns[pc] { // reported after the trap instruction was removed
		return t.returned(tid)
	}
	code, base := regs.marks()
	if code&beginMark == 0 {
		return errNoBegin
	}
	if pc := regs.trapPC(); t.trapPC == 0 {
		t.trapPC = pc
	} else if t.trapPC != pc {
		return fmt.Errorf("traced child: trap at %#x, the mark is at %#x", pc, t.trapPC)
	}
	t.recorded = tid
	if err := t.freeze(tid); err != nil {
		return err
	}
	w := Window{Tag: code >> tagShift}
	t.slide = anchor - base
	dropped, err := t.record(tid, &regs, &w)
	if err == errFaulted {
		return t.thaw()
	}
	if err != nil {
		return err
	}
	if !dropped {
		t.relocate()
		w.Steps = t.steps
		if err := f(w); err != nil {
			return err
		}
	}
	return t.resume(tid)
}

// record steps the thread from one trap to the next, and reports whether that was Drop.
func (t *tracer) record(tid int, regs *registers, w *Window) (dropped bool, err error) {
	regs.setPC(t.trapPC + trapLen)
	if err := regs.store(tid); err != nil {
		return false, os.NewSyscallError("ptrace setregs", err)
	}
	t.steps = t.steps[:0]
	pc := regs.pc()
	for range t.maxSteps {
		if pc == t.trapPC {
			return t.skipEndMark(tid, regs)
		}
		t.steps = append(t.steps, Step{PC: pc, SP: regs.sp()})
		if err := t.pass(tid, pc, regs, w); err != nil {
			return false, err
		}
		pc = regs.pc()
	}
	return false, fmt.Errorf("traced child: no End within %d instructions of Begin(%d)", t.maxSteps, w.Tag)
}

// pass executes the instruction at pc, or the function that begins there if Program.Over selects
// it, and loads regs.
func (t *tracer) pass(tid int, pc uint64, regs *registers, w *Window) error {
	if t.over != nil && t.over(pc+t.slide) {
		return t.runOver(tid, regs)
	}
	if t.instructionAt(tid, pc).entersKernel { // it may wait for another thread
		w.Syscalls++
		if err := t.thaw(); err != nil {
			return err
		}
	}
	return t.stepAny(tid, regs)
}

// skipEndMark moves the thread behind the trap of the end mark, so that it does not execute it.
func (t *tracer) skipEndMark(tid int, regs *registers) (dropped bool, err error) {
	code, _ := regs.marks()
	if code&beginMark != 0 {
		return false, errors.New("traced child: Begin within a window")
	}
	regs.setPC(t.trapPC + trapLen)
	return code == dropMark, os.NewSyscallError("ptrace setregs", regs.store(tid))
}

// instruction describes an instruction for the tracer.
type instruction struct {
	entersKernel bool
	repeats      int // length in bytes if it traps for each of its repetitions; otherwise 0
}

// instructionAt reads the instruction at an address, and caches it.
func (t *tracer) instructionAt(tid int, pc uint64) instruction {
	i, seen := t.text[pc]
	if !seen {
		var text [textLen]byte
		// Unreadable text has no special treatment: the step faults and reports more than an error
		// here.
		if _, err := unix.PtracePeekText(tid, uintptr(pc), text[:]); err == nil {
			i = instruction{bytes.HasPrefix(text[:], kernelEntry), repeats(text[:])}
		}
		t.text[pc] = i
	}
	return i
}

// step executes one instruction of tid.
func (t *tracer) step(tid int) error {
	return t.advance(tid, func() error {
		return os.NewSyscallError("ptrace singlestep", unix.PtraceSingleStep(tid))
	})
}

// advance continues tid by resume until it traps.
func (t *tracer) advance(tid int, resume func() error) error {
	for {
		if err := resume(); err != nil {
			return err
		}
		st, err := t.waitStepped(tid)
		if err != nil {
			return err
		}
		if isTrap(st) {
			return nil
		}
		if err := t.interrupted(tid, st); err != nil {
			return err
		}
	}
}

// waitStepped waits for tid, and meanwhile handles events of the other threads.
func (t *tracer) waitStepped(tid int) (unix.WaitStatus, error) {
	for {
		if st := t.early; st != nil {
			t.early = nil
			return *st, nil
		}
		wait := t.waitAny
		if t.frozen {
			wait = t.waitStep
		}
		got, st, err := wait()
		if err != nil || got == tid {
			return st, err
		}
		if err := t.event(got, st); err != nil {
			return 0, err
		}
		if t.exited {
			return 0, exitError(st)
		}
	}
}

// interrupted handles a stop that interrupted a step. After nil the caller repeats the step.
// Signals are delayed until the window has ended, so that no handler is counted.
func (t *tracer) interrupted(tid int, st unix.WaitStatus) error {
	if !st.Stopped() {
		t.exited = tid == t.pid
		return fmt.Errorf("ended within a window: %w", &ExitError{st})
	}
	switch sig := st.StopSignal(); sig {
	case unix.SIGTRAP:
		if st.TrapCause() == unix.PTRACE_EVENT_CLONE {
			return t.noteClone(tid)
		}
		return nil
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL:
		if err := t.removeTrap(tid); err != nil {
			return err
		}
		if err := t.cont(tid, sig); err != nil {
			return err
		}
		return errFaulted
	case unix.SIGSTOP:
		if th := t.threads[tid]; th.stopping {
			th.stopping = false
			return nil
		}
		fallthrough
	default:
		t.pending = append(t.pending, pendingSignal{tid, sig})
		return nil
	}
}

// resume sends the delayed signals and continues every thread.
func (t *tracer) resume(tid int) error {
	for _, p := range t.pending {
		if err := unix.Tgkill(t.pid, p.tid, p.sig); err != nil && err != unix.ESRCH {
			return os.NewSyscallError("tgkill", err)
		}
	}
	t.pending = t.pending[:0]
	if err := t.thaw(); err != nil {
		return err
	}
	return t.cont(tid, 0)
}

// relocate converts addresses of the child to those of this process.
func (t *tracer) relocate() {
	if t.slide == 0 {
		return
	}
	for i := range t.steps {
		t.steps[i].PC += t.slide
	}
}
