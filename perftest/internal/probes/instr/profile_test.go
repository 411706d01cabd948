package instr

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// fixed returns a resolver of artificial instructions.
func fixed(symbols ...symbol) resolver {
	r := resolver{}
	for i, s := range symbols {
		r[uint64(i)] = s
	}
	return r
}

// Addresses in the resolver of program.
const (
	atHarness = iota
	atUCP
	atUCT
	atVerbs
	atDevice
	atCopy
	programEnd
)

func program() resolver {
	return fixed(
		symbol{function: module + "perftest/internal/probes/instr.op", file: "/x/op.go", line: 1, part: harness},
		symbol{function: module + "ucp.(*EP).Put", file: "/x/rma.go", line: 10, part: UCP},
		symbol{function: module + "uct/ib/rc.(*EP).PutShort", file: "/x/put.go", line: 20, part: UCT},
		symbol{function: module + "uct/ib/verbs.(*QP).PostSend", file: "/x/qp.go", line: 30, part: Verbs},
		symbol{function: module + "internal/softhca.(*device).Ring", file: "/x/ring.go", line: 40, part: Device},
		symbol{function: "runtime.memmove", file: "/go/memmove.s", line: 50, part: services},
	)
}

// walk executes the instructions at pcs with one stack pointer.
func walk(sp uint64, pcs ...uint64) (steps []ptrace.Step) {
	for _, pc := range pcs {
		steps = append(steps, ptrace.Step{PC: pc, SP: sp})
	}
	return steps
}

func TestAttributor_DeviceUntilItReturns(t *testing.T) {
	type step struct {
		part Part
		sp   uint64
		want Part
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"amd64: the call changes the stack pointer", []step{
			{Verbs, 100, Verbs}, {Device, 92, Device}, {Device, 60, Device}, {Verbs, 50, Device},
			{services, 40, Device}, {Verbs, 60, Device}, {Device, 92, Device},
			{Verbs, 100, Verbs}, {services, 92, Verbs}, {UCT, 110, UCT},
		}},
		{"arm64: the call does not", []step{
			{Verbs, 100, Verbs}, {Device, 100, Device}, {Device, 60, Device}, {Verbs, 60, Device},
			{services, 60, Device}, {Device, 100, Device}, {Verbs, 100, Verbs}, {services, 100, Verbs},
		}},
		{"entered twice", []step{
			{Device, 92, Device}, {UCT, 100, UCT}, {Device, 80, Device}, {Verbs, 70, Device}, {UCT, 100, UCT},
		}},
		{"callbacks count for the device", []step{
			{Device, 92, Device}, {UCP, 80, Device}, {harness, 70, Device}, {harness, 120, harness},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := attributor{last: harness}
			for i, s := range tc.steps {
				assert.Equal(t, s.want, a.attribute(s.part, s.sp), "step %d", i)
			}
		})
	}
}

func TestProfile_ServicesCountForTheirCaller(t *testing.T) {
	steps := walk(100, atCopy, atHarness, atCopy, // before and in the harness: not counted
		atUCP, atUCT, atCopy, atCopy, atVerbs)
	steps = append(steps, walk(92, atDevice, atCopy)...)
	steps = append(steps, walk(100, atVerbs, atCopy, atUCT, atUCP, atHarness)...)
	p, ok := program().profile(steps, ByPart)
	require.True(t, ok)
	assert.Equal(t, Profile{
		{Part: UCP}: 2, {Part: UCT}: 4, {Part: Verbs}: 3, {Part: Device}: 2, {Part: harness}: 4,
	}, p)
	assert.Equal(t, 9, p.Total())
	assert.Equal(t, 11, p.WithDevice())
	assert.Equal(t, 4, p.Part(UCT))
}

func TestProfile_Detail(t *testing.T) {
	steps := walk(100, atHarness, atUCT, atCopy, atUCT)
	p, ok := program().profile(steps, ByFunction)
	require.True(t, ok)
	assert.Equal(t, []Place{
		{Part: UCT, Function: "uct/ib/rc.(*EP).PutShort"},
		{Part: UCT, Function: "runtime.memmove"},
	}, p.places())
	assert.Equal(t, 3, p.Part(UCT))

	p, ok = program().profile(steps, ByLine)
	require.True(t, ok)
	assert.Equal(t, 2, p[Place{Part: UCT, Function: "uct/ib/rc.(*EP).PutShort", Line: "put.go:20"}])
}

// preempted is a program in which PutShort begins at atUCT, continues at two addresses and calls the stack
// check.
const (
	atCheck = programEnd + iota
	atMoreStack
	atScheduler
)

func preempted() resolver {
	r := program()
	uct := r[atUCT]
	uct.entry = atUCT
	r[atUCT], r[atCheck] = uct, uct
	r[atMoreStack] = symbol{function: "runtime.morestack_noctxt", part: services}
	r[atScheduler] = symbol{function: "runtime.gopreempt_m", part: services}
	return r
}

func TestProfile_OmitsPreemption(t *testing.T) {
	begin, yield := walk(100, atHarness, atUCT, atCheck), walk(40, atMoreStack, atScheduler, atCopy)
	rest := walk(100, atUCT, atCheck, atCopy, atUCP)
	want, ok := preempted().profile(append(walk(100, atHarness), rest...), ByPart)
	require.True(t, ok)
	got, ok := preempted().profile(slices.Concat(begin, yield, rest), ByPart)
	require.True(t, ok)
	assert.Equal(t, want, got)
	again := slices.Concat(begin, yield, rest[:2], yield, rest)
	got, ok = preempted().profile(again, ByPart)
	require.True(t, ok)
	assert.Equal(t, want, got, "two preemptions at the same address")
}

func TestProfile_Interrupted(t *testing.T) {
	for name, steps := range map[string][]ptrace.Step{
		"stack growth":      slices.Concat(walk(100, atUCT, atCheck, atMoreStack), walk(500, atUCT, atCheck)),
		"does not continue": walk(100, atUCT, atCheck, atMoreStack, atScheduler),
		"at the beginning":  walk(100, atMoreStack, atUCT),
		"not in a function": walk(100, atHarness, atMoreStack, atUCT),
	} {
		_, ok := preempted().profile(steps, ByPart)
		assert.False(t, ok, name)
	}
}

func TestProfile_TotalsDoNotDependOnDetail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOf(rapid.Custom(func(t *rapid.T) ptrace.Step {
			return ptrace.Step{
				PC: rapid.Uint64Range(atHarness, atCopy).Draw(t, "pc"),
				SP: rapid.Uint64Range(90, 100).Draw(t, "sp"),
			}
		})).Draw(t, "steps")
		var want Profile
		for _, d := range []Detail{ByPart, ByFunction, ByLine} {
			p, ok := program().profile(steps, d)
			require.True(t, ok)
			all := 0
			for _, n := range p {
				all += n
			}
			assert.Len(t, steps, all)
			if d == ByPart {
				want = p
			}
			for part := range numParts {
				assert.Equal(t, want.Part(part), p.Part(part), "%v", part)
			}
		}
	})
}

//go:noinline
func bigEndian(b []byte, v uint32) { binary.BigEndian.PutUint32(b, v) }

func TestLookUp_ThisProgram(t *testing.T) {
	entry := uint64(reflect.ValueOf(bigEndian).Pointer())
	s := lookUp(entry)
	assert.Equal(t, module+"perftest/internal/probes/instr.bigEndian", s.function)
	assert.Equal(t, harness, s.part)
	assert.Positive(t, s.line)

	inlined := false
	const codeLen = 32 // minimum length of the code of bigEndian
	for pc := entry; pc < entry+codeLen; pc++ {
		s := lookUp(pc)
		if s.function == "encoding/binary.bigEndian.PutUint32" {
			inlined = true
			assert.Equal(t, services, s.part)
		}
	}
	assert.True(t, inlined, "no instruction of the inlined function was found")
}

func TestLookUp_OutsideTheProgram(t *testing.T) {
	assert.Equal(t, symbol{function: "unknown", part: services}, lookUp(1))
}

func TestResolver_Remembers(t *testing.T) {
	r := resolver{}
	entry := uint64(reflect.ValueOf(bigEndian).Pointer())
	assert.Equal(t, r.at(entry), r.at(entry))
	assert.Len(t, r, 1)
}
