#include "textflag.h"

// func cntvct() uint64
// The counter may be read before earlier loads have their values; ISB waits for these (Arm ARM, D11.2.2).
TEXT ·cntvct(SB), NOSPLIT, $0-8
	ISB $15
	MRS  CNTVCT_EL0, R0
	MOVD R0, ret+0(FP)
	RET
