package prm

// Opcode of a send WQE: bits 7:0 of its first word (mlx5dv.h, MLX5_OPCODE_*).
type Opcode uint8

// Send opcodes. The decoder rejects those that are marked as refused.
const (
	OpNOP          Opcode = 0x00 // consumed; completes if signaled
	OpSendInval    Opcode = 0x01 // refused: no memory windows
	OpRDMAWrite    Opcode = 0x08
	OpRDMAWriteImm Opcode = 0x09
	OpSend         Opcode = 0x0a
	OpSendImm      Opcode = 0x0b
	OpTSO          Opcode = 0x0e // refused
	OpRDMARead     Opcode = 0x10
	OpAtomicCS     Opcode = 0x11
	OpAtomicFA     Opcode = 0x12
	OpMaskedCS     Opcode = 0x14 // refused
	OpMaskedFA     Opcode = 0x15 // refused
	OpLocalInval   Opcode = 0x1b // refused
	OpUMR          Opcode = 0x25 // refused
)

// shape is the list of segments after the control segment and those of the service.
type shape uint8

const (
	shapeBad    shape = iota
	shapeNOP          // no segment is read
	shapeSend         // payload
	shapeWrite        // raddr, payload
	shapeRead         // raddr, data pointers
	shapeAtomic       // raddr, atomic, one data pointer of 8 bytes
)

// shapes is indexed by opcode; opcodes that are not listed are invalid.
var shapes = [256]shape{
	OpNOP:          shapeNOP,
	OpSend:         shapeSend,
	OpSendImm:      shapeSend,
	OpRDMAWrite:    shapeWrite,
	OpRDMAWriteImm: shapeWrite,
	OpRDMARead:     shapeRead,
	OpAtomicCS:     shapeAtomic,
	OpAtomicFA:     shapeAtomic,
}

// CtrlFlags is the byte fm_ce_se of a control segment.
type CtrlFlags uint8

// Control flags. The fence mode is a field of three bits, ctrlFenceMask.
const (
	CtrlSolicited CtrlFlags = 0x02 // raise a solicited event at the receiver
	CtrlCQUpdate  CtrlFlags = 0x08 // generate a CQE also on success
	// CtrlInitiatorFence is set by libmlx5 after a UMR; it does not wait for reads.
	CtrlInitiatorFence CtrlFlags = 1 << 5
	CtrlFenceOnly      CtrlFlags = 2 << 5
	CtrlStrongOrdering CtrlFlags = 3 << 5
	CtrlFence          CtrlFlags = 4 << 5 // small and fence: what IBV_SEND_FENCE sets
	ctrlFenceMask      CtrlFlags = 7 << 5
)

// Signaled reports whether the WQE generates a CQE on success.
func (f CtrlFlags) Signaled() bool { return f&CtrlCQUpdate != 0 }

// Solicited reports whether the receiver's completion is solicited.
func (f CtrlFlags) Solicited() bool { return f&CtrlSolicited != 0 }

// Fenced reports whether the WQE waits for the earlier reads and atomics of its
// QP. It does not distinguish the modes that wait.
func (f CtrlFlags) Fenced() bool { return f&ctrlFenceMask >= CtrlFenceOnly }
