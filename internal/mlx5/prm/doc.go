// Package prm has the formats of mlx5 hardware, those of the programmer's reference
// manual: send and receive work-queue entries (WQE), completion-queue entries (CQE),
// doorbell records, UAR pages with their micro-UARs (uUAR) and BlueFlame buffers; and
// [Hardware], what a driver asks of a device. Each format is written in one place and
// read in one: a driver uses one half, a software HCA the other.
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
// the end, the bytes of an inline segment do. Indexes run on and are masked where they
// become addresses.
//
// The ends of the queues are here too, without locks and without doorbell registers:
// [SendRing] turns work requests into WQEs, [RecvRing] and [RecvList] post receives, and
// [CompRing] reads CQEs. Nothing here allocates after a queue is open. Constants are
// those of the public header infiniband/mlx5dv.h.
package prm
