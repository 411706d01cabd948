package verbs

// SendWR is one send work request. The provider copies it before PostSend
// returns; the memory that SGList names belongs to the device until the work
// request, or a later signaled one of the same queue, completes.
type SendWR struct {
	ID     uint64 // returned in WC.ID
	Opcode Opcode
	Flags  SendFlags
	// Imm is the immediate of the *WithImm opcodes, in host order; it travels
	// big endian.
	Imm uint32
	// SGList is the local memory, gathered (send, write) or scattered (read,
	// atomics) in order. Elements of length 0 are skipped. That of an atomic takes 8
	// bytes whatever its length is.
	SGList []SGE
	// Inline is the payload when Flags has SendInline; SGList is then ignored.
	// Its bytes are copied by PostSend. At most QPCap.MaxInline.
	Inline []byte

	RemoteAddr uint64 // RDMA and atomics
	RKey       uint32
	CompareAdd uint64 // compare value, or addend
	Swap       uint64

	SRQN uint32 // XRC: the number of the remote SRQ, 24 bits

	AH         *AH // UD
	RemoteQPN  uint32
	RemoteQKey uint32
}

// RecvWR is one receive work request.
type RecvWR struct {
	ID     uint64
	SGList []SGE
}

// SGE is a piece of registered local memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Opcode is the operation of a send work request.
type Opcode uint8

// Opcodes, by the values of enum ibv_wr_opcode.
const (
	OpRDMAWrite        Opcode = 0
	OpRDMAWriteWithImm Opcode = 1
	OpSend             Opcode = 2
	OpSendWithImm      Opcode = 3
	OpRDMARead         Opcode = 4
	OpAtomicCmpSwap    Opcode = 5
	OpAtomicFetchAdd   Opcode = 6
)

// SendFlags modify a send work request.
type SendFlags uint8

// Flags, by the values of enum ibv_send_flags.
const (
	SendFence     SendFlags = 1 << 0 // wait for earlier reads and atomics of this QP
	SendSignaled  SendFlags = 1 << 1 // make a completion on success
	SendSolicited SendFlags = 1 << 2 // raise a solicited event at the receiver
	SendInline    SendFlags = 1 << 3 // take the payload from Inline, now
)
