package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errNoBreakpoint says that there is none here, although the architecture has them.
var errNoBreakpoint = errors.New("no breakpoint")

// runPast runs to the end of what begins at pc if that is not to be stepped through: a function
// to run over, or an instruction that repeats itself. done says so, and regs are loaded then.
func (t *tracer) runPast(tid int, pc uint64, i instruction, regs *registers) (done bool, err error) {
	switch {
	case t.over != nil && t.over(pc+t.slide):
		err = t.runOver(tid, regs)
	case i.repeats > 0:
		err = t.runTo(tid, pc+uint64(i.repeats), regs)
	default:
		return false, nil
	}
	if errors.Is(err, errNoBreakpoint) {
		t.breakpoints = false
		return false, nil
	}
	return err == nil, err
}

// runOver runs the function whose first instruction is next in tid until it has returned,
// and loads regs. The other threads run meanwhile: what the function waits for may be one of
// them. errNoBreakpoint if nothing was run.
func (t *tracer) runOver(tid int, regs *registers) error {
	back, err := regs.returnAddress(tid)
	if err != nil {
		return err
	}
	frozen := t.frozen
	if err := t.thaw(); err != nil {
		return err
	}
	err = t.runTo(tid, back, regs)
	if !frozen || err != nil && !errors.Is(err, errNoBreakpoint) {
		return err
	}
	return errors.Join(err, t.freeze(tid))
}

// runTo runs tid until the instruction at pc is next, and loads regs. errNoBreakpoint if
// nothing was run.
func (t *tracer) runTo(tid int, pc uint64, regs *registers) error {
	if err := setBreakpoint(tid, pc); err != nil {
		return fmt.Errorf("%w: %w", errNoBreakpoint, err)
	}
	err := t.advance(tid, func() error { return os.NewSyscallError("ptrace cont", unix.PtraceCont(tid, 0)) })
	if err != nil {
		return err
	}
	if err := clearBreakpoint(tid); err != nil {
		return err
	}
	if err := regs.load(tid); err != nil {
		return os.NewSyscallError("ptrace getregs", err)
	}
	if regs.pc() != pc {
		return fmt.Errorf("traced child: trap at %#x in what was to go on at %#x", regs.pc(), pc)
	}
	return nil
}

// returnAddress reads where the function goes back to of which no instruction has run.
func (r *registers) returnAddress(tid int) (uint64, error) {
	var word [8]byte
	if _, err := unix.PtracePeekData(tid, uintptr(r.sp()), word[:]); err != nil {
		return 0, os.NewSyscallError("ptrace peekdata", err)
	}
	return binary.LittleEndian.Uint64(word[:]), nil
}

// The registers of the first breakpoint of a thread, and what switches it on: a trap before
// the instruction at the address is executed (Intel SDM volume 3, "Debug Registers").
const (
	breakpointAddr    = debugRegisters
	breakpointControl = debugRegisters + 7*8
	breakpointOn      = 1
)

func setBreakpoint(tid int, pc uint64) error {
	if err := pokeUser(tid, breakpointAddr, pc); err != nil {
		return err
	}
	return pokeUser(tid, breakpointControl, breakpointOn)
}

func clearBreakpoint(tid int) error { return pokeUser(tid, breakpointControl, 0) }

func pokeUser(tid int, at uintptr, v uint64) error {
	_, err := unix.PtracePokeUser(tid, at, binary.LittleEndian.AppendUint64(nil, v))
	return os.NewSyscallError("ptrace pokeuser", err)
}
