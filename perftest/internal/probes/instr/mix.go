package instr

import (
	"os"
	"runtime"
	"sync"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// Mix counts the instructions of a profile by type: those that CPUs predict or wait for.
type Mix struct {
	Branches int // conditional and other jumps, calls and returns
	Calls    int // calls, direct and indirect
	Indirect int // those through a pointer, such as methods of an interface
	Loads    int // reads of memory other than the return address
}

// add adds the types of one instruction.
func (m *Mix) add(k kind) {
	m.Branches += int(k & branch / branch)
	m.Calls += int(k & call / call)
	m.Indirect += int(k & indirect / indirect)
	m.Loads += int(k & load / load)
}

// kind is a set of instruction types.
type kind uint8

const (
	branch kind = 1 << iota
	call
	indirect
	load
)

// instructionLen is the maximum length of an instruction of amd64 in bytes.
const instructionLen = 15

// code is the memory of this program. The traced child runs the same program, so its instructions are at the same
// addresses. nil if it cannot be read.
var code = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/mem")
	if err != nil || runtime.GOARCH != "amd64" {
		return nil
	}
	return f // until the process exits
})

// kindAt returns the type of the instruction at pc; none on other architectures than amd64.
func kindAt(pc uint64) kind {
	f := code()
	if f == nil {
		return 0
	}
	var b [instructionLen]byte
	if n, err := f.ReadAt(b[:], int64(pc)); n < len(b) && err != nil {
		return 0
	}
	return classify(b[:])
}

// mix counts the types of the instructions of a window that profile accepts.
func (r resolver) mix(steps []ptrace.Step, d Detail) map[Place]Mix {
	kept, ok := r.undisturbed(steps)
	if !ok {
		return nil
	}
	all := map[Place]Mix{}
	a := attributor{last: harness}
	for _, step := range kept {
		s := r.at(step.PC)
		at := place(a.attribute(s.part, step.SP), s, d)
		m := all[at]
		m.add(s.kind)
		all[at] = m
	}
	return all
}

// Mix returns the sum of the types of the layers' instructions.
func (s Sample) Mix() (sum Mix) {
	for at, m := range s.mix {
		if at.Part > Device && at.Part < harness {
			sum.Branches += m.Branches
			sum.Calls += m.Calls
			sum.Indirect += m.Indirect
			sum.Loads += m.Loads
		}
	}
	return sum
}

// classify decodes the first bytes of an instruction of amd64 as far as its type needs. It knows the instructions that
// the Go compiler and the assembly of this module use; other instructions have no type.
func classify(b []byte) kind {
	rep := false
	for len(b) > 4 {
		switch {
		case b[0] == 0xf0 || b[0] == 0x66 || b[0] == 0x64: // lock, operand size, fs
		case b[0] == 0xf2 || b[0] == 0xf3:
			rep = true
		case b[0]&0xf0 == 0x40: // rex
		default:
			return classifyOpcode(b, rep)
		}
		b = b[1:]
	}
	return 0
}

// memory reports whether the operand after the opcode is in memory.
func memory(modrm byte) bool { return modrm>>6 != 3 }

// ifMemory returns load if the operand is in memory.
func ifMemory(modrm byte) kind {
	if memory(modrm) {
		return load
	}
	return 0
}

func classifyOpcode(b []byte, rep bool) kind {
	op, modrm := b[0], b[1]
	switch {
	case op == 0x0f:
		return classifyLong(b[1:], rep)
	case op&0xf0 == 0x70 || op == 0xe9 || op == 0xeb || op == 0xe3: // jcc, jmp, jrcxz
		return branch
	case op == 0xe8:
		return branch | call
	case op == 0xc3:
		return branch
	case op == 0xff:
		return classifyGroup5(modrm)
	case op&0xf8 == 0x58: // pop
		return load
	case op < 0x40 && op&0x07 <= 0x03, op == 0x84, op == 0x85, op == 0x86, op == 0x87, // add ... cmp, test, xchg
		op == 0x8a, op == 0x8b, op == 0x63, op == 0x69, op == 0x6b, // mov, movsxd, imul
		op&0xfc == 0x80 && op != 0x82, op&0xfc == 0xd0, op == 0xc0, op == 0xc1, // with a constant; shifts
		op == 0xf6, op == 0xf7, op == 0xfe:
		return ifMemory(modrm)
	case op == 0xa4 || op == 0xa5: // movs
		return load
	case op == 0xc5: // moves of vectors, with a prefix of two bytes
		return classifyLong(b[2:], true)
	}
	return 0
}

// classifyGroup5 classifies inc, dec, call, jmp and push.
func classifyGroup5(modrm byte) kind {
	k := ifMemory(modrm)
	switch modrm >> 3 & 7 {
	case 2:
		return k | branch | call | indirect
	case 4:
		return k | branch | indirect
	}
	return k
}

// classifyLong classifies instructions whose opcode begins with 0f.
func classifyLong(b []byte, rep bool) kind {
	op, modrm := b[0], b[1]
	switch {
	case op&0xf0 == 0x80: // jcc
		return branch
	case op&0xf0 == 0x40, op == 0xb6, op == 0xb7, op == 0xbe, op == 0xbf, op == 0xaf, // cmov, movzx, movsx, imul
		op == 0x10, op == 0x28, op == 0x6f, op == 0x6e, op == 0xb1, op == 0xc1, op == 0xb0, // moves of vectors, cmpxchg, xadd
		op == 0xa3, op == 0xab, op == 0xba, op == 0xbc, op == 0xbd, op == 0xef: // bits, pxor
		return ifMemory(modrm)
	case op == 0x7e && rep: // movq
		return ifMemory(modrm)
	}
	return 0
}
