#include "textflag.h"

// func rdtsc() uint64
// RDTSC may execute before earlier loads have their values; LFENCE waits for these (Intel SDM volume 2B,
// RDTSC; AMD APM volume 3, LFENCE, which Linux makes dispatch-serializing).
TEXT ·rdtsc(SB), NOSPLIT, $0-8
	LFENCE
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
