package ptrace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A trap instruction ends a function that is not stepped. Breakpoint registers would not change the text, but in some
// virtual machines they exist and never trap.

// runOver runs the function whose first instruction is next in tid until it has returned, and loads regs. The other
// threads run meanwhile, because the function may wait for one of them.
func (t *tracer) runOver(tid int, regs *registers) error {
	back, err := regs.returnAddress(tid)
	if err != nil {
		return err
	}
	frozen := t.frozen
	if err := t.thaw(); err != nil {
		return err
	}
	t.returns[back] = true
	if err := t.runTo(tid, back, regs); err != nil {
		return err
	}
	if frozen {
		return t.freeze(tid)
	}
	return nil
}

// returned handles a trap in thread tid, which is not the recorded one. The thread must have returned to an address at
// which runOver has set a trap; it continues there.
func (t *tracer) returned(tid int) error {
	var regs registers
	if err := regs.load(tid); err != nil {
		return os.NewSyscallError("ptrace getregs", err)
	}
	pc := regs.trapPC()
	if !t.returns[pc] {
		return fmt.Errorf("traced child: mark in thread %d within a window", tid)
	}
	regs.setPC(pc)
	if err := regs.store(tid); err != nil {
		return os.NewSyscallError("ptrace setregs", err)
	}
	if pc == t.trapAt {
		if err := t.stepPast(tid); err != nil {
			return err
		}
	}
	return t.cont(tid, 0)
}

// stepPast executes the instruction of tid that the trap instruction replaces. It stops the recorded thread meanwhile,
// which must not miss the trap instruction.
func (t *tracer) stepPast(tid int) error {
	running, err := t.stopRecorded()
	if err != nil {
		return err
	}
	if err := pokeText(tid, t.trapAt, t.replaced[:]); err != nil {
		return err
	}
	if err := unix.PtraceSingleStep(tid); err != nil {
		return os.NewSyscallError("ptrace singlestep", err)
	}
	st, err := t.wait(tid)
	if err != nil {
		return err
	}
	if !isTrap(st) { // a signal comes first; the thread will trap again
		if err := t.event(tid, st); err != nil {
			return err
		}
	}
	if err := pokeText(t.recorded, t.trapAt, trapText[:]); err != nil || !running {
		return err
	}
	return t.cont(t.recorded, 0)
}

// stopRecorded stops the recorded thread and reports whether it was running. If it was not, its stop is in t.early, for
// waitStepped.
func (t *tracer) stopRecorded() (running bool, err error) {
	if t.early != nil {
		return false, nil
	}
	if err := unix.Tgkill(t.pid, t.recorded, unix.SIGSTOP); err != nil {
		return false, os.NewSyscallError("tgkill", err)
	}
	th := t.threads[t.recorded]
	th.stopping = true
	for {
		st, err := t.wait(t.recorded)
		if err != nil {
			return false, err
		}
		if isTrap(st) || !st.Stopped() {
			t.early = &st
			return false, nil
		}
		if err := t.interrupted(t.recorded, st); err != nil || !th.stopping {
			return err == nil, err
		}
		if err := t.cont(t.recorded, 0); err != nil {
			return false, err
		}
	}
}

// stepAny executes the next instruction of tid with all its repetitions, and loads regs.
func (t *tracer) stepAny(tid int, regs *registers) error {
	if n := t.instructionAt(tid, regs.pc()).repeats; n > 0 {
		return t.repeat(tid, regs.pc()+uint64(n), regs)
	}
	if err := t.step(tid); err != nil {
		return err
	}
	return os.NewSyscallError("ptrace getregs", regs.load(tid))
}

// repeat executes the string instruction of tid that ends at the address end, and loads regs. A single step would
// execute one repetition. The other threads, which may execute the same text, are stopped.
func (t *tracer) repeat(tid int, end uint64, regs *registers) error {
	frozen := t.frozen
	if err := t.freeze(tid); err != nil {
		return err
	}
	if err := t.runTo(tid, end, regs); err != nil {
		return err
	}
	if frozen {
		return nil
	}
	return t.thaw()
}

// runTo runs tid until the instruction at pc is next, and loads regs.
func (t *tracer) runTo(tid int, pc uint64, regs *registers) error {
	if _, err := unix.PtracePeekText(tid, uintptr(pc), t.replaced[:]); err != nil {
		return os.NewSyscallError("ptrace peektext", err)
	}
	if err := pokeText(tid, pc, trapText[:]); err != nil {
		return err
	}
	t.trapAt = pc
	err := t.advance(tid, func() error { return os.NewSyscallError("ptrace cont", unix.PtraceCont(tid, 0)) })
	if err != nil {
		return err
	}
	if err := t.removeTrap(tid); err != nil {
		return err
	}
	if err := regs.load(tid); err != nil {
		return os.NewSyscallError("ptrace getregs", err)
	}
	if regs.trapPC() != pc {
		return fmt.Errorf("traced child: trap at %#x before %#x", regs.trapPC(), pc)
	}
	regs.setPC(pc)
	return os.NewSyscallError("ptrace setregs", regs.store(tid))
}

// removeTrap restores the text at trapAt, if there is a trap instruction. tid must be stopped.
func (t *tracer) removeTrap(tid int) error {
	at := t.trapAt
	if at == 0 {
		return nil
	}
	t.trapAt = 0
	return pokeText(tid, at, t.replaced[:])
}

func pokeText(tid int, pc uint64, text []byte) error {
	_, err := unix.PtracePokeText(tid, uintptr(pc), text)
	return os.NewSyscallError("ptrace poketext", err)
}
