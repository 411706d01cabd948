// Package prm has the formats of mlx5 hardware from the programmer's reference
// manual: send and receive work-queue entries (WQE), completion-queue entries (CQE),
// doorbell records, UAR pages with their micro-UARs (uUAR) and BlueFlame buffers; and
// [Hardware], the interface of a device for its driver. Each format has one encoder and one decoder:
// the driver uses one of them, the software HCA the other.
//
// All fields in a queue are big-endian. A send queue is a ring of 64-byte basic
// blocks (BB). A WQE starts at a BB and consists of 16-byte units, so a WQE of ds
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
// the end; the bytes of an inline segment may. Indexes are free-running; the code masks them when it
// computes an address.
//
// The package also has producers and consumers of queues, without locks and doorbell registers:
// [SendRing] converts work requests to WQEs, [RecvRing] and [RecvList] post receives, and
// [CompRing] reads CQEs. They do not allocate after a queue is open. Constants are
// those of the public header infiniband/mlx5dv.h.
package prm
