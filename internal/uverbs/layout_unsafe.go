package uverbs

import (
	"structs"
	"unsafe"
)

// Structs of ib_user_verbs.h and ib_user_ioctl_verbs.h. Response is the address of the reply in
// the write ABI, and is 0 with Context.Invoke.

// QPCap is struct ib_uverbs_qp_cap.
type QPCap struct {
	_                                                       structs.HostLayout
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline uint32
}

// AllocPD is struct ib_uverbs_alloc_pd.
type AllocPD struct {
	_        structs.HostLayout
	Response uint64
}

// CompChannel is struct ib_uverbs_create_comp_channel.
type CompChannel = AllocPD

// HandleReply is the reply of commands that make an object, or a descriptor.
type HandleReply struct {
	_      structs.HostLayout
	Handle uint32
}

// RegMR is struct ib_uverbs_reg_mr. Start and HCAVA are equal modulo the page size.
type RegMR struct {
	_                           structs.HostLayout
	Response, Start, Len, HCAVA uint64
	PD, Access                  uint32
}

// RegMRReply is struct ib_uverbs_reg_mr_resp.
type RegMRReply struct {
	_                  structs.HostLayout
	Handle, LKey, RKey uint32
}

// ReqNotifyCQ is struct ib_uverbs_req_notify_cq.
type ReqNotifyCQ struct {
	_                 structs.HostLayout
	CQ, SolicitedOnly uint32
}

// AHAttr is struct ib_uverbs_ah_attr, with its struct ib_uverbs_global_route in front.
type AHAttr struct {
	_                                              structs.HostLayout
	DGID                                           [16]byte
	FlowLabel                                      uint32
	SGIDIndex, HopLimit, TrafficClass, _           uint8
	DLID                                           uint16
	SL, SrcPathBits, StaticRate, IsGlobal, Port, _ uint8
}

// CreateAH is struct ib_uverbs_create_ah.
type CreateAH struct {
	_                    structs.HostLayout
	Response, UserHandle uint64
	PD, _                uint32
	Attr                 AHAttr
}

// QPDest is struct ib_uverbs_qp_dest.
type QPDest struct {
	_                                                                              structs.HostLayout
	DGID                                                                           [16]byte
	FlowLabel                                                                      uint32
	DLID, _                                                                        uint16
	SGIDIndex, HopLimit, TrafficClass, SL, SrcPathBits, StaticRate, IsGlobal, Port uint8
}

// ModifyQP is struct ib_uverbs_modify_qp. Mask has the bits of enum ib_qp_attr_mask.
type ModifyQP struct {
	_                                        structs.HostLayout
	Dest, AltDest                            QPDest
	QP, Mask                                 uint32
	QKey, RQPSN, SQPSN, DestQPN, AccessFlags uint32
	PKeyIndex, AltPKeyIndex                  uint16
	State, CurState, PathMTU, PathMigState   uint8
	EnSQDAsync, MaxRDAtomic, MaxDestRD       uint8
	MinRNRTimer, Port, Timeout, RetryCnt     uint8
	RNRRetry, AltPort, AltTimeout            uint8
	_                                        [2]uint8
}

// QueryQP is struct ib_uverbs_query_qp.
type QueryQP struct {
	_        structs.HostLayout
	Response uint64
	QP, Mask uint32
}

// QueryQPReply is struct ib_uverbs_query_qp_resp.
type QueryQPReply struct {
	_                                        structs.HostLayout
	Dest, AltDest                            QPDest
	Cap                                      [5]uint32
	QKey, RQPSN, SQPSN, DestQPN, AccessFlags uint32
	PKeyIndex, AltPKeyIndex                  uint16
	State, CurState, PathMTU, PathMigState   uint8
	SQDraining, MaxRDAtomic, MaxDestRD       uint8
	MinRNRTimer, Port, Timeout, RetryCnt     uint8
	RNRRetry, AltPort, AltTimeout, SigAll    uint8
	_                                        [5]uint8
}

// Post is struct ib_uverbs_post_send. With WRCount 0 the driver processes the queue that it shares with the process.
type Post struct {
	_                              structs.HostLayout
	Response                       uint64
	QP, WRCount, SGECount, WQESize uint32
}

// PostReply is struct ib_uverbs_post_send_resp.
type PostReply struct {
	_     structs.HostLayout
	BadWR uint32
}

// ModifySRQ is struct ib_uverbs_modify_srq.
type ModifySRQ struct {
	_                       structs.HostLayout
	SRQ, Mask, MaxWR, Limit uint32
}

// QuerySRQ is struct ib_uverbs_query_srq.
type QuerySRQ struct {
	_        structs.HostLayout
	Response uint64
	SRQ, _   uint32
}

// QuerySRQReply is struct ib_uverbs_query_srq_resp.
type QuerySRQReply struct {
	_                       structs.HostLayout
	MaxWR, MaxSGE, Limit, _ uint32
}

// OpenXRCD is struct ib_uverbs_open_xrcd. FD is -1 for a private domain.
type OpenXRCD struct {
	_        structs.HostLayout
	Response uint64
	FD       int32
	OFlags   uint32
}

// OpenQP is struct ib_uverbs_open_qp. XRCD is the handle of the XRC domain, in the field of the PD.
type OpenQP struct {
	_                    structs.HostLayout
	Response, UserHandle uint64
	XRCD, QPN            uint32
	Type                 uint8
	_                    [7]uint8
}

// OpenQPReply is struct ib_uverbs_create_qp_resp.
type OpenQPReply struct {
	_          structs.HostLayout
	QP, Number uint32
	Cap        QPCap
	_          uint32
}

// QueryDevice is struct ib_uverbs_query_device.
type QueryDevice struct {
	_        structs.HostLayout
	Response uint64
}

// QueryDeviceReply is struct ib_uverbs_query_device_resp. NodeGUID and SysImageGUID are big endian.
type QueryDeviceReply struct {
	_                                                         structs.HostLayout
	FWVer, NodeGUID, SysImageGUID, MaxMRSize, PageSizeCap     uint64
	VendorID, VendorPartID, HWVer, MaxQP, MaxQPWR, CapFlags   uint32
	MaxSGE, MaxSGERd, MaxCQ, MaxCQE, MaxMR, MaxPD             uint32
	MaxQPRDAtom, MaxEERDAtom, MaxResRDAtom, MaxQPInitRDAtom   uint32
	MaxEEInitRDAtom, AtomicCap, MaxEE, MaxRDD, MaxMW          uint32
	MaxRawIPv6QP, MaxRawEthyQP, MaxMcastGrp, MaxMcastQPAttach uint32
	MaxTotalMcastQPAttach, MaxAH, MaxFMR, MaxMapPerFMR        uint32
	MaxSRQ, MaxSRQWR, MaxSRQSGE                               uint32
	MaxPKeys                                                  uint16
	LocalCAAckDelay, PhysPorts                                uint8
	_                                                         [4]uint8
}

// QueryPortReply is struct ib_uverbs_query_port_resp_ex.
type QueryPortReply struct {
	_                                                      structs.HostLayout
	CapFlags, MaxMsgSize, BadPKeyCount, QKeyViolations     uint32
	GIDTableLen                                            uint32
	PKeyTableLen, LID, SMLID                               uint16
	State, MaxMTU, ActiveMTU, LMC, MaxVL, SMSL             uint8
	SubnetTimeout, InitTypeReply, ActiveWidth, ActiveSpeed uint8
	PhysState, LinkLayer, Flags, _                         uint8
	CapFlags2                                              uint16
	_                                                      [2]uint8
	ActiveSpeedEx                                          uint32
}

// GIDEntry is struct ib_uverbs_gid_entry. Type is 0 InfiniBand, 1 RoCE v1, 2 RoCE v2; NetDev is the
// number of the network interface, or 0.
type GIDEntry struct {
	_                         structs.HostLayout
	GID                       [16]byte
	Index, Port, Type, NetDev uint32
}

// DestroyReply is the reply of methods that destroy a QP or an SRQ.
type DestroyReply struct {
	_      structs.HostLayout
	Events uint32
}

// DestroyCQReply is struct ib_uverbs_destroy_cq_resp.
type DestroyCQReply struct {
	_                       structs.HostLayout
	CompEvents, AsyncEvents uint32
}

// WC is struct ib_uverbs_wc. Imm is big endian.
type WC struct {
	_                                                   structs.HostLayout
	WRID                                                uint64
	Status, Opcode, VendorErr, ByteLen, Imm, QPN, SrcQP uint32
	Flags                                               uint32
	PKeyIndex, SLID                                     uint16
	SL, DLIDPathBits, Port, _                           uint8
}

// asyncEvent is struct ib_uverbs_async_event_desc.
type asyncEvent struct {
	_       structs.HostLayout
	Element uint64
	Type, _ uint32
}

// commandHeader is struct ib_uverbs_cmd_hdr: lengths in 4-byte words, with the header.
type commandHeader struct {
	_                 structs.HostLayout
	Number            uint32
	InWords, OutWords uint16
}

// ioctlHeader is struct ib_uverbs_ioctl_hdr.
type ioctlHeader struct {
	_                             structs.HostLayout
	Len, Object, Method, NumAttrs uint16
	_                             uint64
	Driver, _                     uint32
}

// ioctlAttr is struct ib_uverbs_attr.
type ioctlAttr struct {
	_                 structs.HostLayout
	ID, Len, Flags, _ uint16
	Data              uint64
}

// Each line fails to compile if the size differs from that of the struct of the kernel.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(QPCap{})-20]
	_ = [1]struct{}{}[unsafe.Sizeof(AllocPD{})-8]
	_ = [1]struct{}{}[unsafe.Sizeof(HandleReply{})-4]
	_ = [1]struct{}{}[unsafe.Sizeof(RegMR{})-40]
	_ = [1]struct{}{}[unsafe.Sizeof(RegMRReply{})-12]
	_ = [1]struct{}{}[unsafe.Sizeof(ReqNotifyCQ{})-8]
	_ = [1]struct{}{}[unsafe.Sizeof(AHAttr{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(CreateAH{})-56]
	_ = [1]struct{}{}[unsafe.Sizeof(QPDest{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(ModifyQP{})-112]
	_ = [1]struct{}{}[unsafe.Sizeof(QueryQP{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(QueryQPReply{})-128]
	_ = [1]struct{}{}[unsafe.Sizeof(Post{})-24]
	_ = [1]struct{}{}[unsafe.Sizeof(PostReply{})-4]
	_ = [1]struct{}{}[unsafe.Sizeof(ModifySRQ{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(QuerySRQ{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(QuerySRQReply{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(OpenXRCD{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(OpenQP{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(OpenQPReply{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(QueryDevice{})-8]
	_ = [1]struct{}{}[unsafe.Sizeof(QueryDeviceReply{})-176]
	_ = [1]struct{}{}[unsafe.Sizeof(QueryPortReply{})-48]
	_ = [1]struct{}{}[unsafe.Sizeof(GIDEntry{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(DestroyReply{})-4]
	_ = [1]struct{}{}[unsafe.Sizeof(DestroyCQReply{})-8]
	_ = [1]struct{}{}[unsafe.Sizeof(WC{})-48]
	_ = [1]struct{}{}[unsafe.Sizeof(asyncEvent{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(commandHeader{})-8]
	_ = [1]struct{}{}[unsafe.Sizeof(ioctlHeader{})-24]
	_ = [1]struct{}{}[unsafe.Sizeof(ioctlAttr{})-16]
)

// BytesOf returns the memory of *v, a struct of the ABI without pointers. The caller must keep v alive.
func BytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// addressOf returns the address of the first byte of b, for the kernel. b must be outside the Go heap, or the caller must
// keep it alive until the kernel no longer uses it.
func addressOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
