package ptrace

import (
	"encoding/binary"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// supported: this architecture has the marks and the registers below.
const supported = true

// trapLen is the length of INT3.
const trapLen = 1

var trapText = [trapLen]byte{0xcc}

// kernelEntry is the SYSCALL instruction.
var kernelEntry = []byte{0x0f, 0x05}

// registers are the general registers of a stopped thread.
type registers struct{ unix.PtraceRegs }

func (r *registers) load(tid int) error  { return unix.PtraceGetRegs(tid, &r.PtraceRegs) }
func (r *registers) store(tid int) error { return unix.PtraceSetRegs(tid, &r.PtraceRegs) }
func (r *registers) pc() uint64          { return r.Rip }
func (r *registers) sp() uint64          { return r.Rsp }
func (r *registers) setPC(pc uint64)     { r.Rip = pc }

// marks returns the two words that trap passes.
func (r *registers) marks() (code, base uint64) { return r.Rax, r.Rbx }

// trapPC returns the address of the trap instruction that stopped the thread: INT3 reports the
// address after it.
func (r *registers) trapPC() uint64 { return r.Rip - trapLen }

// returnAddress returns the return address of a function that has executed no instruction: CALL has
// pushed it.
func (r *registers) returnAddress(tid int) (uint64, error) {
	var pushed [8]byte
	if _, err := unix.PtracePeekData(tid, uintptr(r.sp()), pushed[:]); err != nil {
		return 0, os.NewSyscallError("ptrace peekdata", err)
	}
	return binary.LittleEndian.Uint64(pushed[:]), nil
}

// textLen is the number of bytes of an instruction that repeats and kernelEntry need.
const textLen = 4

// The prefix bytes of a repeated string instruction (Intel SDM volume 2, "REP").
const (
	prefixREPNE = 0xf2
	prefixREP   = 0xf3
	prefixREX   = 0x40 // in the upper half of the byte
)

// stringOps are the opcodes that can be repeated: MOVS, CMPS, STOS, LODS and SCAS, for bytes and
// for larger operands.
var stringOps = []byte{0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}

// repeats returns the length in bytes of the instruction at the start of text if it repeats itself;
// otherwise 0.
func repeats(text []byte) int {
	if text[0] != prefixREP && text[0] != prefixREPNE {
		return 0
	}
	n := 1
	if text[n]&0xf0 == prefixREX {
		n++
	}
	if !slices.Contains(stringOps, text[n]) {
		return 0
	}
	return n + 1
}
