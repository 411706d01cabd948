package ptrace

import "golang.org/x/sys/unix"

// supported: this architecture has the marks and the registers below.
const supported = true

// trapLen is the length of BRK.
const trapLen = 4

// trapText is BRK #0, little endian.
var trapText = [trapLen]byte{0x00, 0x00, 0x20, 0xd4}

// ntPrStatus selects the general registers for PTRACE_GETREGSET (linux/elf.h).
const ntPrStatus = 1

// kernelEntry is SVC #0, little endian.
var kernelEntry = []byte{0x01, 0x00, 0x00, 0xd4}

// registers are the general registers of a stopped thread.
type registers struct{ unix.PtraceRegsArm64 }

func (r *registers) load(tid int) error {
	return unix.PtraceGetRegSetArm64(tid, ntPrStatus, &r.PtraceRegsArm64)
}

func (r *registers) store(tid int) error {
	return unix.PtraceSetRegSetArm64(tid, ntPrStatus, &r.PtraceRegsArm64)
}

func (r *registers) pc() uint64      { return r.Pc }
func (r *registers) sp() uint64      { return r.Sp }
func (r *registers) setPC(pc uint64) { r.Pc = pc }

// marks returns the two words that trap passes.
func (r *registers) marks() (code, base uint64) { return r.Regs[0], r.Regs[1] }

// trapPC returns the address of the trap instruction that stopped the thread: BRK reports its own
// address.
func (r *registers) trapPC() uint64 { return r.Pc }

// linkRegister is the number of the register in which BL stores the return address.
const linkRegister = 30

// returnAddress returns the return address of a function that has executed no instruction.
func (r *registers) returnAddress(int) (uint64, error) { return r.Regs[linkRegister], nil }

// textLen is the number of bytes of an instruction that repeats and kernelEntry need.
const textLen = 4

// repeats returns 0: no instruction traps more than once.
func repeats([]byte) int { return 0 }
