#include "textflag.h"

// func trap(code, base uint64)
// The tracer reads R0 and R1 and resumes behind the BRK.
TEXT ·trap(SB), NOSPLIT, $0-16
	MOVD code+0(FP), R0
	MOVD base+8(FP), R1
	BRK  $0
	RET

// func known()
// 1 + 2*20 + 1 instructions: see KnownLen.
TEXT ·known(SB), NOSPLIT, $0-0
	MOVD $20, R0
loop:
	SUB  $1, R0
	CBNZ R0, loop
	RET
