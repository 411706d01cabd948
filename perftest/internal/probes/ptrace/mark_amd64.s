#include "textflag.h"

// func trap(code, base uint64)
// The tracer reads AX and BX; INT3 is one byte and the tracer resumes behind it.
TEXT ·trap(SB), NOSPLIT, $0-16
	MOVQ code+0(FP), AX
	MOVQ base+8(FP), BX
	BYTE $0xCC
	RET

// func known()
// 1 + 2*20 + 1 instructions: see KnownLen.
TEXT ·known(SB), NOSPLIT, $0-0
	MOVL $20, CX
loop:
	DECL CX
	JNZ  loop
	RET
