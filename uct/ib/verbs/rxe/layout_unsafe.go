package rxe

import (
	"structs"
	"unsafe"

	"github.com/gucx/gucx/internal/uverbs"
)

// mmapInfo is struct mminfo: offset and length of memory that the process maps.
type mmapInfo struct {
	_      structs.HostLayout
	Offset uint64
	Len, _ uint32
}

// createSRQReply is struct rxe_create_srq_resp.
type createSRQReply struct {
	_         structs.HostLayout
	Queue     mmapInfo
	Number, _ uint32
}

// createQPReply is struct rxe_create_qp_resp. The length of the receive queue is 0 if the QP has an SRQ.
type createQPReply struct {
	_          structs.HostLayout
	Recv, Send mmapInfo
}

// createAHReply is struct rxe_create_ah_resp.
type createAHReply struct {
	_         structs.HostLayout
	Number, _ uint32
}

// ringHeader is struct rxe_queue_buf: a ring of slots of equal length. Both sides store masked indexes. The ring is empty
// if the indexes are equal.
type ringHeader struct {
	_           structs.HostLayout
	log2SlotLen uint32
	indexMask   uint32
	_           [30]uint32
	producer    uint32
	_           [31]uint32
	consumer    uint32
	_           [31]uint32
}

// sge is struct rxe_sge.
type sge struct {
	_         structs.HostLayout
	addr      uint64
	len, lkey uint32
}

// dmaInfo is struct rxe_dma_info without the array at its end.
type dmaInfo struct {
	_                                     structs.HostLayout
	len, resid, curSGE, numSGE, offset, _ uint32
}

// sendWQE is struct rxe_send_wqe. The opcode determines the type of args. SGEs or inline bytes follow the struct.
type sendWQE struct {
	_                                                 structs.HostLayout
	wrID                                              uint64
	_                                                 uint32
	opcode, flags                                     uint32
	imm                                               uint32 // big endian
	args                                              [120]byte
	status, state                                     uint32
	iova                                              uint64 // remote address
	mask, firstPSN, lastPSN, ackLen, ssn, hasRDAtomic uint32
	dma                                               dmaInfo
}

// rdmaArgs are the args of RDMA writes and reads.
type rdmaArgs struct {
	_          structs.HostLayout
	remoteAddr uint64
	rkey, _    uint32
}

// atomicArgs are the args of atomics.
type atomicArgs struct {
	_                            structs.HostLayout
	remoteAddr, compareAdd, swap uint64
	rkey, _                      uint32
}

// datagramArgs are the args of sends of a UD QP. ah is the number of the AH in the kernel.
type datagramArgs struct {
	_            structs.HostLayout
	qpn, qkey    uint32
	pkeyIndex, _ uint16
	ah           uint32
}

// recvWQE is struct rxe_recv_wqe. SGEs follow the struct.
type recvWQE struct {
	_    structs.HostLayout
	wrID uint64
	_    [2]uint32
	dma  dmaInfo
}

// Lengths in bytes.
const (
	ringHeaderLen = int(unsafe.Sizeof(ringHeader{}))
	sgeLen        = int(unsafe.Sizeof(sge{}))
	sendWQELen    = int(unsafe.Sizeof(sendWQE{}))
	recvWQELen    = int(unsafe.Sizeof(recvWQE{}))
	wcLen         = int(unsafe.Sizeof(uverbs.WC{}))
)

// Each line fails to compile if the size differs from that of the struct of the kernel.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(mmapInfo{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(createSRQReply{})-24]
	_ = [1]struct{}{}[unsafe.Sizeof(createQPReply{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(createAHReply{})-8]
	_ = [1]struct{}{}[ringHeaderLen-384]
	_ = [1]struct{}{}[unsafe.Offsetof(ringHeader{}.producer)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(ringHeader{}.consumer)-256]
	_ = [1]struct{}{}[sgeLen-16]
	_ = [1]struct{}{}[unsafe.Sizeof(dmaInfo{})-24]
	_ = [1]struct{}{}[sendWQELen-208]
	_ = [1]struct{}{}[unsafe.Offsetof(sendWQE{}.iova)-152]
	_ = [1]struct{}{}[recvWQELen-40]
)
