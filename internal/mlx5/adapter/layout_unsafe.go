package adapter

import (
	"structs"
	"unsafe"
)

// Structs of mlx5-abi.h.

// contextRequest is struct mlx5_ib_alloc_ucontext_req_v2.
type contextRequest struct {
	_                                       structs.HostLayout
	totalRegisters, lowLatency, flags, mask uint32
	maxCQEVersion                           uint8
	_                                       [7]uint8
	libCaps                                 uint64
}

// contextReply is struct mlx5_ib_alloc_ucontext_resp.
type contextReply struct {
	_                                                  structs.HostLayout
	qpTableLen, bfRegLen, totalRegisters, cacheLineLen uint32
	maxSendWQELen, maxRecvWQELen                       uint16
	maxSendBBs, maxRecvWR, maxSRQWR                    uint32
	ports, _                                           uint16
	mask, replyLen                                     uint32
	cqeVersion, commandsWithData, minInline, _         uint8
	clockOffset                                        uint64
	uarLenLog2, uarsPerPage, dynamicRegisters, _       uint32
}

// allocPDReply is struct mlx5_ib_alloc_pd_resp.
type allocPDReply struct {
	_   structs.HostLayout
	PDN uint32
}

// createCQ is struct mlx5_ib_create_cq.
type createCQ struct {
	_              structs.HostLayout
	buf, record    uint64
	cqeLen         uint32
	_, _           uint8
	flags, uarPage uint16
	_              uint16
	_              uint32
}

// numberReply is struct mlx5_ib_create_cq_resp, and mlx5_ib_create_srq_resp.
type numberReply struct {
	_         structs.HostLayout
	Number, _ uint32
}

// createSRQ is struct mlx5_ib_create_srq.
type createSRQ struct {
	_            structs.HostLayout
	buf, record  uint64
	flags, _     uint32
	userIndex, _ uint32
}

// createQP is struct mlx5_ib_create_qp.
type createQP struct {
	_                              structs.HostLayout
	buf, record                    uint64
	sendBBs, recvCount, recvStride uint32 // recvStride is the logarithm of the stride
	flags, userIndex, register     uint32
	sendBuf                        uint64 // of raw packet QPs only
	ece                            uint32
	streams                        [2]uint8
	_                              uint16
}

// createQPReply is struct mlx5_ib_create_qp_resp.
type createQPReply struct {
	_           structs.HostLayout
	register, _ uint32
	_           [8]uint32 // of raw packet QPs
}

// createAHReply is struct mlx5_ib_create_ah_resp.
type createAHReply struct {
	_        structs.HostLayout
	replyLen uint32
	mac      [6]uint8
	_        [6]uint8
}

// Each line fails to compile if the size differs from that of the struct of the kernel.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(contextRequest{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(contextReply{})-72]
	_ = [1]struct{}{}[unsafe.Offsetof(contextReply{}.uarLenLog2)-56]
	_ = [1]struct{}{}[unsafe.Sizeof(allocPDReply{})-4]
	_ = [1]struct{}{}[unsafe.Sizeof(createCQ{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(numberReply{})-8]
	_ = [1]struct{}{}[unsafe.Sizeof(createSRQ{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(createQP{})-56]
	_ = [1]struct{}{}[unsafe.Sizeof(createQPReply{})-40]
	_ = [1]struct{}{}[unsafe.Sizeof(createAHReply{})-16]
)

// Flags and capabilities of mlx5-abi.h.
const (
	libCap4KUAR       = 1 << 0  // MLX5_LIB_CAP_4K_UAR
	libCapDynamicUAR  = 1 << 1  // MLX5_LIB_CAP_DYN_UAR
	cqUARPageIndex    = 1 << 1  // MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX
	qpUARPageIndex    = 1 << 10 // MLX5_QP_FLAG_UAR_PAGE_INDEX
	createAHWithReply = 1 << 1  // MLX5_USER_CMDS_SUPP_UHW_CREATE_AH
)

// Attributes of MLX5_IB_OBJECT_UAR in mlx5_user_ioctl_cmds.h.
const (
	uarHandle    = 0x1000
	uarType      = 0x1001
	uarMapOffset = 0x1002
	uarMapLen    = 0x1003
	uarPageIndex = 0x1004
)

// Types of UAR pages, by enum mlx5_ib_uapi_uar_alloc_type of mlx5_user_ioctl_verbs.h.
const (
	uarTypeBlueFlame = 0
	uarTypePlain     = 1
)

// addressOf returns the address of the first byte of b, for the kernel. The caller keeps b alive.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// address returns the address of a queue, for the kernel.
func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

// pageAt returns the base address of a mapped UAR page.
func pageAt(mem []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(mem)) }
