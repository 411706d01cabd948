//go:build !purego

#include "textflag.h"

// func Doorbell64(reg unsafe.Pointer, first8 uint64)
TEXT ·Doorbell64(SB), NOSPLIT, $0-16
	MOVQ reg+0(FP), DI
	MOVQ first8+8(FP), AX
	MOVQ AX, (DI)
	RET

// func Copy64(dst, src unsafe.Pointer)
TEXT ·Copy64(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ 0(SI), AX
	MOVQ 8(SI), BX
	MOVQ 16(SI), CX
	MOVQ 24(SI), DX
	MOVQ 32(SI), R8
	MOVQ 40(SI), R9
	MOVQ 48(SI), R10
	MOVQ 56(SI), R11
	MOVQ AX, 0(DI)
	MOVQ BX, 8(DI)
	MOVQ CX, 16(DI)
	MOVQ DX, 24(DI)
	MOVQ R8, 32(DI)
	MOVQ R9, 40(DI)
	MOVQ R10, 48(DI)
	MOVQ R11, 56(DI)
	RET

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func FlushWC()
TEXT ·FlushWC(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	LFENCE
	RET

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	PAUSE
	RET

// func PrefetchW(p unsafe.Pointer)
// The assembler of Go has no name for PREFETCHW (AX): 0F 0D /1, AMD64 Architecture
// Programmer's Manual volume 3. Processors that lack it take it as a NOP.
TEXT ·PrefetchW(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	RET

// func PrefetchWLines(p unsafe.Pointer, lines int)
TEXT ·PrefetchWLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	TESTQ CX, CX
	JLE  done
next:
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	ADDQ $64, AX
	DECQ CX
	JNZ  next
done:
	RET
