package instr

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noKinds is the function of a collector for windows that were not stepped.
func noKinds() map[Place]Mix { return nil }

// The bytes are output of the Go assembler.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		bytes, text string
		want        kind
	}{
		{"488b442408", "MOVQ 8(SP), AX", load},
		{"4889442408", "MOVQ AX, 8(SP)", 0},
		{"4889c3", "MOVQ AX, BX", 0},
		{"488d442408", "LEAQ 8(SP), AX", 0},
		{"0fb64101", "MOVZX 1(CX), AX", load},
		{"0fb6c1", "MOVZX CL, AX", 0},
		{"483b6610", "CMPQ SP, 16(R14)", load},
		{"4883f810", "CMPQ AX, $16", 0},
		{"83780800", "CMPL 8(AX), $0", load},
		{"48014108", "ADDQ AX, 8(CX)", load},
		{"7405", "JEQ", branch},
		{"0f8401000000", "JEQ, far", branch},
		{"eb05", "JMP", branch},
		{"e801000000", "CALL", branch | call},
		{"ffd0", "CALL AX", branch | call | indirect},
		{"ff5018", "CALL 24(AX)", branch | call | indirect | load},
		{"c3", "RET", branch},
		{"5d", "POPQ BP", load},
		{"55", "PUSHQ BP", 0},
		{"f3410f6f00", "MOVOU (R8), X0", load},
		{"f3410f7f00", "MOVOU X0, (R8)", 0},
		{"f0480fb10b", "LOCK CMPXCHGQ CX, (BX)", load},
		{"c5fe6f06", "VMOVDQU (SI), Y0", load},
		{"f3a4", "REP MOVSB", load},
	} {
		b, err := hex.DecodeString(c.bytes)
		require.NoError(t, err)
		b = append(b, make([]byte, instructionLen)...)
		assert.Equal(t, c.want, classify(b[:instructionLen]), c.text)
	}
}

func TestMix_Adds(t *testing.T) {
	var m Mix
	for _, k := range []kind{branch, branch | call, branch | call | indirect | load, load, 0} {
		m.add(k)
	}
	assert.Equal(t, Mix{Branches: 3, Calls: 2, Indirect: 1, Loads: 2}, m)
	s := Sample{mix: map[Place]Mix{{Part: UCT}: m, {Part: Device}: m, {Part: harness}: m}}
	assert.Equal(t, m, s.Mix(), "only the layers")
}
