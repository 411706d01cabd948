package prm

// CQELen is the length of a CQE. The 128-byte form is not used.
const CQELen = 64

// CQEOpcode is bits 7:4 of the last byte of a CQE (mlx5dv.h, MLX5_CQE_*).
type CQEOpcode uint8

// CQE opcodes.
const (
	CQEReq         CQEOpcode = 0  // a send work request has succeeded
	CQERespWrImm   CQEOpcode = 1  // RDMA write with immediate arrived
	CQERespSend    CQEOpcode = 2  // send arrived
	CQERespSendImm CQEOpcode = 3  // send with immediate arrived
	CQERespSendInv CQEOpcode = 4  // send with invalidate arrived
	CQEResize      CQEOpcode = 5  // resize; never produced
	CQEReqErr      CQEOpcode = 13 // a send work request failed
	CQERespErr     CQEOpcode = 14 // a receive failed
	CQEInvalid     CQEOpcode = 15 // never written yet
)

// cqeInitOpOwn is the last byte of every CQE before the first pass.
const cqeInitOpOwn = uint8(CQEInvalid) << 4

const (
	cqeOwnerBit     = 0x01
	cqeSolicitedBit = 0x02
	cqeFormatMask   = 0x0c
	cqeOpcodeShift  = 4
	cqeGRHShift     = 28
	cqeSLShift      = 24
)

// CQE is a completion, decoded. Fields that an opcode does not have are 0.
type CQE struct {
	Opcode    CQEOpcode
	Solicited bool
	// UserIndex is srqn_uidx: the number that user space has assigned to the QP, also if the
	// completion has consumed an entry of a basic SRQ, which has no such number; for an XRC SRQ the
	// number of the SRQ. 24 bits.
	UserIndex  uint32
	WQECounter uint16 // send: index of the WQE's first BB; SRQ: entry
	SendOp     Opcode // of the work request; REQ and REQ_ERR
	QPN        uint32
	ByteCount  uint32
	Imm        uint32 // host order
	SrcQP      uint32 // 24 bits
	SL         uint8  // 4 bits
	GRH        uint8  // 2 bits; not 0 if a GRH precedes the data
	SLID       uint16
	Path       uint8 // 7 bits
	Timestamp  uint64

	Syndrome  Syndrome // REQ_ERR and RESP_ERR
	VendorErr uint8
}

// IsError reports whether the CQE has the error layout.
func (c *CQE) IsError() bool { return c.Opcode == CQEReqErr || c.Opcode == CQERespErr }

// CQESlot is an entry of a completion queue. Bytes 60 to 63 are the word that
// transfers ownership: the device writes it last (Write), software reads it first
// (Tail). Every entry must be aligned to eight bytes; otherwise a release store faults
// on arm64.
type CQESlot struct {
	_    [0]uint64
	body [CQELen - 4]byte
	tail uint32 // big-endian
}

// body of a CQE that is not an error: bytes 16 to 59.
func (s *CQESlot) putBody(c *CQE) {
	be.PutUint64(s.body[16:24], uint64(c.Path)<<48|uint64(c.SLID))
	rqpn := uint64(c.GRH)<<cqeGRHShift | uint64(c.SL)<<cqeSLShift | uint64(c.SrcQP)
	be.PutUint64(s.body[24:32], rqpn<<32)
	be.PutUint64(s.body[32:40], uint64(c.UserIndex)<<32|uint64(c.Imm))
	be.PutUint64(s.body[40:48], uint64(c.ByteCount))
	be.PutUint64(s.body[48:56], c.Timestamp)
}

// putErrBody is putBody for the error layout.
func (s *CQESlot) putErrBody(c *CQE) {
	be.PutUint64(s.body[16:24], 0)
	be.PutUint64(s.body[24:32], 0)
	be.PutUint64(s.body[32:40], uint64(c.UserIndex)<<32)
	be.PutUint64(s.body[40:48], 0)
	be.PutUint64(s.body[48:56], uint64(c.VendorErr)<<8|uint64(c.Syndrome))
}

// Write fills the entry and then transfers it to software with one release store of
// its last word, which pairs with the load in Tail. owner is the pass bit of the
// producer index: see OwnerBit.
func (s *CQESlot) Write(c *CQE, owner uint8) {
	be.PutUint64(s.body[0:8], 0)
	be.PutUint64(s.body[8:16], 0)
	if c.IsError() {
		s.putErrBody(c)
	} else {
		s.putBody(c)
	}
	be.PutUint32(s.body[56:60], uint32(c.SendOp)<<24|c.QPN)
	opOwn := uint32(c.Opcode)<<cqeOpcodeShift | uint32(owner)&cqeOwnerBit
	if c.Solicited {
		opOwn |= cqeSolicitedBit
	}
	s.storeTail(uint32(c.WQECounter)<<16 | opOwn)
}

// WriteSent is Write for a successful send work request, whose CQE has few
// fields: the opcode and the index of the WQE, number and user index of the QP, and
// the number of bytes read.
func (s *CQESlot) WriteSent(op Opcode, index uint16, qpn, userIndex, n uint32, owner uint8) {
	*(*[56]byte)(s.body[:]) = [56]byte{}
	be.PutUint32(s.body[32:36], userIndex)
	be.PutUint32(s.body[44:48], n)
	be.PutUint32(s.body[56:60], uint32(op)<<24|qpn)
	s.storeTail(uint32(index)<<16 | uint32(CQEReq)<<cqeOpcodeShift | uint32(owner)&cqeOwnerBit)
}

// Init marks the entry as never written.
func (s *CQESlot) Init() { s.storeTail(uint32(cqeInitOpOwn)) }

// OwnerBit returns the pass bit of index i in a queue of count entries, a power of
// two: 0 in the first pass.
func OwnerBit(i, count uint32) uint8 {
	if i&count != 0 {
		return 1
	}
	return 0
}

// Tail is the last word of a CQE: wqe_counter, signature, op_own.
type Tail uint32

// Owned reports whether software owns the CQE when its consumer index has the
// given pass bit.
func (t Tail) Owned(owner uint8) bool {
	return uint8(t)&cqeOwnerBit == owner && t.Opcode() != CQEInvalid
}

// Opcode of the CQE.
func (t Tail) Opcode() CQEOpcode { return CQEOpcode(uint8(t) >> cqeOpcodeShift) }

// WQECounter of the CQE.
func (t Tail) WQECounter() uint16 { return uint16(t >> 16) }

// OfReceive reports whether the CQE is the completion of a receive, and not of a send work
// request.
func (t Tail) OfReceive() bool { return t.Opcode() != CQEReq && t.Opcode() != CQEReqErr }

// Solicited is the solicited bit.
func (t Tail) Solicited() bool { return t&cqeSolicitedBit != 0 }

// UserIndex is srqn_uidx, 24 bits.
func (s *CQESlot) UserIndex() uint32 { return be.Uint32(s.body[32:36]) & qpnMask }

// Imm is the immediate, in host order.
func (s *CQESlot) Imm() uint32 { return be.Uint32(s.body[36:40]) }

// ByteCount is the number of bytes that arrived or were read.
func (s *CQESlot) ByteCount() uint32 { return be.Uint32(s.body[44:48]) }

// SendOp is the opcode of the send work request.
func (s *CQESlot) SendOp() Opcode { return Opcode(s.body[56]) }

// QPN is the number of the QP.
func (s *CQESlot) QPN() uint32 { return be.Uint32(s.body[56:60]) & qpnMask }

// QPNLow is the low byte of QPN.
func (s *CQESlot) QPNLow() uint8 { return s.body[59] }

// SetQPN changes the number of the QP. The entry is software's.
func (s *CQESlot) SetQPN(n uint32) {
	be.PutUint32(s.body[56:60], uint32(s.body[56])<<24|n&qpnMask)
}

// Syndrome of an error CQE.
func (s *CQESlot) Syndrome() Syndrome { return Syndrome(s.body[55]) }

// VendorErr of an error CQE.
func (s *CQESlot) VendorErr() uint8 { return s.body[54] }

// RemoteQP is the GRH field, the SL and the sender's QPN.
func (s *CQESlot) RemoteQP() (grh, sl uint8, qpn uint32) {
	w := be.Uint32(s.body[24:28])
	return uint8(w >> cqeGRHShift & 3), uint8(w >> cqeSLShift & 15), w & qpnMask
}

// Read decodes the entry to c if software owns it in the pass of owner. It returns
// false, and does not change c, if the device has not written the entry, or has written a
// compressed or inline-scatter CQE, which this package does not request.
func (s *CQESlot) Read(c *CQE, owner uint8) bool {
	t := s.Tail()
	if !t.Owned(owner) || t&cqeFormatMask != 0 {
		return false
	}
	*c = CQE{
		Opcode: t.Opcode(), Solicited: t.Solicited(), WQECounter: t.WQECounter(),
		UserIndex: s.UserIndex(), SendOp: s.SendOp(), QPN: s.QPN(),
	}
	if c.IsError() {
		c.Syndrome, c.VendorErr = s.Syndrome(), s.VendorErr()
		return true
	}
	c.GRH, c.SL, c.SrcQP = s.RemoteQP()
	c.Path = s.body[17] & avPathMask
	c.SLID = be.Uint16(s.body[22:24])
	c.Imm, c.ByteCount = s.Imm(), s.ByteCount()
	c.Timestamp = be.Uint64(s.body[48:56])
	return true
}
