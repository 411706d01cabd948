package instr

import "runtime"

// symbol describes one instruction.
type symbol struct {
	function string // innermost function: inlined code has the name of its source
	file     string
	line     int
	part     Part   // part of that function, or services
	entry    uint64 // part of the function that it was compiled into
	kind     kind
}

// resolver looks up symbols of this program and caches them.
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

// lookUp reads the tables of the runtime. CallersFrames takes return addresses: it looks at the
// byte before. Only the innermost inlined function is known, so inlined services count for the part
// that executed before them, as called ones do.
func lookUp(pc uint64) symbol {
	frame, _ := runtime.CallersFrames([]uintptr{uintptr(pc) + 1}).Next()
	if frame.Function == "" {
		return symbol{function: "unknown", part: services} // the vDSO of the kernel
	}
	return symbol{
		function: frame.Function, file: frame.File, line: frame.Line,
		part: partOf(packageOf(frame.Function)), entry: entryOf(pc), kind: kindAt(pc),
	}
}

// entryOf returns the address of the start of the function that contains pc; 0 if unknown.
func entryOf(pc uint64) uint64 {
	f := runtime.FuncForPC(uintptr(pc))
	if f == nil {
		return 0
	}
	return uint64(f.Entry())
}
