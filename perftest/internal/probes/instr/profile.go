package instr

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// Place is a part and, as far as asked for, a function or line of it.
type Place struct {
	Part     Part
	Function string // without the module's path; "" is the whole part
	Line     string // file:line; "" is the whole function
}

// Detail is how finely instructions are told apart.
type Detail int

// Details, each including the ones before.
const (
	ByPart Detail = iota
	ByFunction
	ByLine
)

// Profile is how many instructions were executed where.
type Profile map[Place]int

// profile counts the instructions of one window. ok is false if the scheduler took
// part in it in a way that cannot be taken out.
func (r resolver) profile(steps []ptrace.Step, d Detail) (p Profile, ok bool) {
	if steps, ok = r.undisturbed(steps); !ok {
		return nil, false
	}
	p = Profile{}
	a := attributor{last: harness}
	for _, step := range steps {
		s := r.at(step.PC)
		p[place(a.attribute(s.part, step.SP), s, d)]++
	}
	return p, true
}

// attributor follows the execution of a window. An instruction counts for the part
// of its package, with two exceptions: in services it counts for the part that was
// executing last, which is their caller; and all that is executed until a call into
// the device returns is the device's, because on hardware it is done by silicon:
// the mlx5 package also holds the device's side of the formats.
type attributor struct {
	last     Part
	inDevice bool
	deviceSP uint64 // the stack pointer on entry to the device
}

// attribute takes the part of an instruction's package and the stack pointer, and
// returns the part that it counts for.
func (a *attributor) attribute(part Part, sp uint64) Part {
	switch {
	case !a.inDevice && part == Device:
		a.inDevice, a.deviceSP = true, sp
	// The stack grows down. Where a call pushes nothing (arm64), the pointer after
	// the return is the one on entry.
	case a.inDevice && (sp > a.deviceSP || sp == a.deviceSP && part != Device && part != services):
		a.inDevice = false
	}
	switch {
	case a.inDevice:
		a.last = Device
	case part != services:
		a.last = part
	}
	return a.last
}

// place is where an instruction counts at the given detail.
func place(part Part, s symbol, d Detail) Place {
	at := Place{Part: part}
	if d >= ByFunction {
		at.Function = strings.TrimPrefix(s.function, module)
	}
	if d >= ByLine {
		at.Line = path.Base(s.file) + ":" + strconv.Itoa(s.line)
	}
	return at
}

// Part returns the instructions of one part.
func (p Profile) Part(part Part) (n int) {
	for at, count := range p {
		if at.Part == part {
			n += count
		}
	}
	return n
}

// Total returns the instructions of the layers: without the device, which is
// silicon elsewhere, and without the measuring program.
func (p Profile) Total() int { return p.Part(Verbs) + p.Part(AVerbs) + p.Part(UCT) + p.Part(UCP) }

// WithDevice returns the instructions of the layers and of the software HCA.
func (p Profile) WithDevice() int { return p.Total() + p.Part(Device) }

// places lists the counted places: the highest part first, and within a part the
// largest count first.
func (p Profile) places() []Place {
	var all []Place
	for at := range p {
		if at.Part < harness {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b Place) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(p[b], p[a]),
			cmp.Compare(a.Function, b.Function), cmp.Compare(a.Line, b.Line))
	})
	return all
}
