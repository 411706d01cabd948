//go:build amd64 && !race && !purego

#include "textflag.h"

// func copyString(dst, src unsafe.Pointer, n int)
TEXT ·copyString(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	CLD
	REP; MOVSB
	RET
