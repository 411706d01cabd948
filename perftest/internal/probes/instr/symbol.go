package instr

import "runtime"

// symbol is what is known of one instruction.
type symbol struct {
	function string // innermost, so that inlined code is named by what it was written in
	file     string
	line     int
	part     Part   // of that function, or services
	entry    uint64 // of the function that it was compiled into
	kind     kind
}

// resolver finds symbols of this program and remembers them.
type resolver map[uint64]symbol

// at returns the symbol of the instruction at pc.
func (r resolver) at(pc uint64) symbol {
	s, seen := r[pc]
	if !seen {
		s = lookUp(pc)
		r[pc] = s
	}
	return s
}

// lookUp reads the runtime's tables. CallersFrames takes return addresses: it looks
// at the byte before. It knows the innermost inlined function only, so that inlined
// services are told by what ran before them, as called ones are.
func lookUp(pc uint64) symbol {
	frame, _ := runtime.CallersFrames([]uintptr{uintptr(pc) + 1}).Next()
	if frame.Function == "" {
		return symbol{function: "unknown", part: services} // the kernel's vDSO
	}
	return symbol{
		function: frame.Function, file: frame.File, line: frame.Line,
		part: partOf(packageOf(frame.Function)), entry: entryOf(pc), kind: kindAt(pc),
	}
}

// entryOf is the address at which the function with the instruction at pc begins; 0 if
// that is not known.
func entryOf(pc uint64) uint64 {
	f := runtime.FuncForPC(uintptr(pc))
	if f == nil {
		return 0
	}
	return uint64(f.Entry())
}
