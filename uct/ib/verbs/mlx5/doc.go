// Package mlx5 knows the formats and policies of mlx5 hardware: send and receive
// work-queue entries (WQE), completion-queue entries (CQE), doorbell records, UAR
// pages with their micro-UARs (uUAR) and BlueFlame buffers; and it is a verbs
// provider that drives such queues over a [Hardware].
//
// Everything in a queue is big endian. A send queue is a ring of 64-byte basic
// blocks (BB); a WQE starts on a BB and is a run of 16-byte units, so a WQE of ds
// units advances the producer index by ceil(ds/4):
//
//	BB k                                   BB k+1
//	+--------+--------+--------+--------+  +--------+---
//	| ctrl   | raddr  | atomic | data   |  | data   | ...    RC
//	+--------+--------+--------+--------+  +--------+---
//	| ctrl   | AV, 48 bytes             |  | data   | ...    UD
//	+--------+--------------------------+  +--------+---
//	| ctrl   | raddr  | len, inline bytes ...  padded to 16   RC, inline
//	+--------+--------+-----------------------------------
//
// After its last BB the ring continues at its first one. Segments never straddle
// the end, the bytes of an inline segment do.
//
// The encoders and decoders allocate nothing and hold no state; the driver uses
// one half, the software HCA the other, and both share the constants here, which
// are those of the public header infiniband/mlx5dv.h.
package mlx5
