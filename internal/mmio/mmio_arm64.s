//go:build !purego

#include "textflag.h"

// Barrier options: Arm Architecture Reference Manual, DMB and DSB, field CRm.
#define OSHLD 1
#define OSHST 2
#define ST 14

// func Doorbell64(reg unsafe.Pointer, first8 uint64)
TEXT ·Doorbell64(SB), NOSPLIT, $0-16
	MOVD reg+0(FP), R0
	MOVD first8+8(FP), R1
	MOVD R1, (R0)
	RET

// func Copy64(dst, src unsafe.Pointer)
TEXT ·Copy64(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	LDP  0(R1), (R2, R3)
	LDP  16(R1), (R4, R5)
	LDP  32(R1), (R6, R7)
	LDP  48(R1), (R8, R9)
	STP  (R2, R3), 0(R0)
	STP  (R4, R5), 16(R0)
	STP  (R6, R7), 32(R0)
	STP  (R8, R9), 48(R0)
	RET

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	DMB $OSHST
	RET

// func FlushWC()
TEXT ·FlushWC(SB), NOSPLIT, $0-0
	DSB $ST
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	DMB $OSHLD
	RET

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	YIELD
	RET

// func PrefetchW(p unsafe.Pointer)
TEXT ·PrefetchW(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PSTL1KEEP
	RET

// func PrefetchWLines(p unsafe.Pointer, lines int)
TEXT ·PrefetchWLines(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD lines+8(FP), R1
	CMP  $0, R1
	BLE  done
next:
	PRFM (R0), PSTL1KEEP
	ADD  $64, R0
	SUBS $1, R1
	BNE  next
done:
	RET
