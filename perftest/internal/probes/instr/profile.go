package instr

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// Place is a part and, depending on the detail, a function or line of it.
type Place struct {
	Part     Part
	Function string // without the module's path; "" is the whole part
	Line     string // file:line; "" is the whole function
}

// Detail is the granularity of counts.
type Detail int

// Details; each includes the previous ones.
const (
	ByPart Detail = iota
	ByFunction
	ByLine
)

// Profile is the number of executed instructions by place.
type Profile map[Place]int

// profile counts the instructions of one window. ok is false if the scheduler interrupted it and
// its steps cannot be removed.
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

// attributor follows the execution of a window. An instruction counts for the part of its package,
// with two exceptions. In services it counts for the part that executed last, which is the caller.
// Everything until a call into the device returns counts for the device, because with hardware
// silicon does it: package prm also contains the device's side of the formats.
type attributor struct {
	last     Part
	inDevice bool
	deviceSP uint64 // the stack pointer on entry to the device
}

// attribute takes the part of an instruction's package and the stack pointer, and returns the part
// for which the instruction counts.
func (a *attributor) attribute(part Part, sp uint64) Part {
	switch {
	case !a.inDevice && part == Device:
		a.inDevice, a.deviceSP = true, sp
	// The stack grows down. If a call pushes nothing (arm64), the pointer after the return equals
	// that on entry.
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

// place returns the place of an instruction at the selected detail.
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

// Total returns the instructions of the layers, without those of the device and of the measuring
// program.
func (p Profile) Total() int { return p.Part(Verbs) + p.Part(AVerbs) + p.Part(UCT) + p.Part(UCP) }

// WithDevice returns the instructions of the layers and of the software HCA.
func (p Profile) WithDevice() int { return p.Total() + p.Part(Device) }

// places returns the counted places: the highest part first, and within a part the largest count
// first.
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
