package ptrace

import "golang.org/x/sys/unix"

// supported says that this architecture has the marks and the registers below.
const supported = true

// trapLen is the length of INT3.
const trapLen = 1

// kernelEntry is the SYSCALL instruction.
var kernelEntry = []byte{0x0f, 0x05}

// registers are the general registers of a stopped thread.
type registers struct{ unix.PtraceRegs }

func (r *registers) load(tid int) error  { return unix.PtraceGetRegs(tid, &r.PtraceRegs) }
func (r *registers) store(tid int) error { return unix.PtraceSetRegs(tid, &r.PtraceRegs) }
func (r *registers) pc() uint64          { return r.Rip }
func (r *registers) sp() uint64          { return r.Rsp }
func (r *registers) setPC(pc uint64)     { r.Rip = pc }

// marks are the two words that trap passes.
func (r *registers) marks() (code, base uint64) { return r.Rax, r.Rbx }

// trapPC is the address of the trap instruction that stopped the thread: INT3
// reports the address behind it.
func (r *registers) trapPC() uint64 { return r.Rip - trapLen }

// hasBreakpoints says that threads have registers for breakpoints, debugRegisters where
// they are in struct user (sys/user.h).
const (
	hasBreakpoints = true
	debugRegisters = 848
)
