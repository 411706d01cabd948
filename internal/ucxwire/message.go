package ucxwire

// ID is the id of an active message of UCP.
type ID = uint8

// The active messages of UCP. Ids that are missing here are not used over transports without
// hardware tag matching.
const (
	IDWireup       ID     = 1
	IDEager        ID     = 2
	IDEagerFirst   ID     = 3
	IDEagerMiddle  ID     = 4
	IDSync         ID     = 6
	IDSyncFirst    ID     = 7
	IDSyncAck      ID     = 8
	IDRTS          ID     = 9
	IDATS          ID     = 10
	IDRTR          ID     = 11
	IDRndvData     ID     = 12
	IDStream       ID     = 15
	IDATP          ID     = 16
	IDPut          ID     = 17
	IDGetRequest   ID     = 18
	IDGetReply     ID     = 19
	IDAtomic       ID     = 20
	IDAtomicReply  ID     = 21
	IDCompletion   ID     = 22
	IDAM           ID     = 23
	IDAMFirst      ID     = 24
	IDAMMiddle     ID     = 25
	IDAMReply      ID     = 26
	IDAMFirstPSN   ID     = 27 // as IDAMFirst
	IDAMMiddlePSN  ID     = 28 // as IDAMMiddle
	LargestID      ID     = 28
	HostMemory            = 0 // memory type of Put, GetRequest and remote keys; the only one here
	RTSOpcodeTag          = 0
	RTSOpcodeAM           = 1
	RTSOpcodeRMA          = 2
	FlagAMReply           = 1 // of AM.Flags: the receiver may send to the endpoint that is named
	FlagAMEager           = 2
	FlagAMRndv            = 4
	MaxAtomicBytes        = 8
	NoConnSN       uint16 = 0xffff // ConnSN of endpoints that were connected by a socket
)

// Lengths of headers in bytes.
const (
	EagerLen       = 8
	EagerFirstLen  = 24
	FragmentLen    = 16
	SyncLen        = 24
	SyncFirstLen   = 40
	ReplyLen       = 9
	SizedReplyLen  = 17
	RTSLen         = 41
	RTRLen         = 40
	StreamLen      = 8
	PutLen         = 20
	GetRequestLen  = 36
	AtomicLen      = 26
	AtomicReplyLen = 8
	AMLen          = 8
	AMFirstTail    = 24
	AMMiddleLen    = 8
	AMMiddleTail   = 16
	AMReplyTail    = 8
)

// Eager is a tagged message in one piece (IDEager).
type Eager struct {
	Tag  uint64
	Data []byte
}

// DecodeEager decodes a message of IDEager.
func DecodeEager(b []byte) (m Eager, ok bool) {
	if len(b) < EagerLen {
		return m, false
	}
	return Eager{le.Uint64(b), b[EagerLen:]}, true
}

// AppendEager appends the header; the data follow.
func AppendEager(b []byte, m Eager) []byte { return le.AppendUint64(b, m.Tag) }

// EagerFirst begins a tagged message in pieces (IDEagerFirst): Data is the piece at offset 0. MsgID
// names the message for the pieces that follow, and is unique among all messages to a worker.
type EagerFirst struct {
	Tag, Total, MsgID uint64
	Data              []byte
}

// DecodeEagerFirst decodes a message of IDEagerFirst.
func DecodeEagerFirst(b []byte) (m EagerFirst, ok bool) {
	if len(b) < EagerFirstLen {
		return m, false
	}
	m = EagerFirst{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), b[EagerFirstLen:]}
	return m, uint64(len(m.Data)) <= m.Total
}

// AppendEagerFirst appends the header; the data follow.
func AppendEagerFirst(b []byte, m EagerFirst) []byte { return appendWords(b, m.Tag, m.Total, m.MsgID) }

// Fragment is a piece of a message: of IDEagerMiddle, where Name is the MsgID; of IDRndvData, where it
// is the request of the receiver; of IDGetReply, where it is the request of the initiator.
type Fragment struct {
	Name, Offset uint64
	Data         []byte
}

// DecodeFragment decodes a message of IDEagerMiddle, IDRndvData or IDGetReply.
func DecodeFragment(b []byte) (m Fragment, ok bool) {
	if len(b) < FragmentLen {
		return m, false
	}
	return Fragment{le.Uint64(b), le.Uint64(b[8:]), b[FragmentLen:]}, true
}

// AppendFragment appends the header; the data follow.
func AppendFragment(b []byte, m Fragment) []byte { return appendWords(b, m.Name, m.Offset) }

// Sync is a tagged message in one piece that is acknowledged when it is matched (IDSync). EP is the
// endpoint of the receiver, Req the request of the sender, which the acknowledgement names.
type Sync struct {
	Tag, EP, Req uint64
	Data         []byte
}

// DecodeSync decodes a message of IDSync.
func DecodeSync(b []byte) (m Sync, ok bool) {
	if len(b) < SyncLen {
		return m, false
	}
	return Sync{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), b[SyncLen:]}, true
}

// AppendSync appends the header; the data follow.
func AppendSync(b []byte, m Sync) []byte { return appendWords(b, m.Tag, m.EP, m.Req) }

// SyncFirst begins a tagged message in pieces that is acknowledged when it is matched (IDSyncFirst).
// It may be the only piece.
type SyncFirst struct {
	Tag, Total, MsgID, EP, Req uint64
	Data                       []byte
}

// DecodeSyncFirst decodes a message of IDSyncFirst.
func DecodeSyncFirst(b []byte) (m SyncFirst, ok bool) {
	if len(b) < SyncFirstLen {
		return m, false
	}
	m = SyncFirst{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:]), b[SyncFirstLen:]}
	return m, uint64(len(m.Data)) <= m.Total
}

// AppendSyncFirst appends the header; the data follow.
func AppendSyncFirst(b []byte, m SyncFirst) []byte {
	return appendWords(b, m.Tag, m.Total, m.MsgID, m.EP, m.Req)
}

// Reply completes a request of the peer: the acknowledgement of a Sync (IDSyncAck), the end of a
// rendezvous (IDATS, IDATP). Sized says that Size, the number of bytes that were moved, is there.
type Reply struct {
	Req    uint64
	Status Status
	Sized  bool
	Size   uint64
}

// DecodeReply decodes a message of IDSyncAck, IDATS or IDATP.
func DecodeReply(b []byte) (m Reply, ok bool) {
	if len(b) < ReplyLen {
		return m, false
	}
	m = Reply{Req: le.Uint64(b), Status: Status(b[8])}
	if len(b) >= SizedReplyLen {
		m.Sized, m.Size = true, le.Uint64(b[ReplyLen:])
	}
	return m, true
}

// AppendReply appends the message.
func AppendReply(b []byte, m Reply) []byte {
	b = append(le.AppendUint64(b, m.Req), byte(m.Status))
	if m.Sized {
		b = le.AppendUint64(b, m.Size)
	}
	return b
}

// RTS requests that the receiver fetches a message (IDRTS). Header is the tag, or for RTSOpcodeAM the first
// eight bytes of an AM. EP is the endpoint of the receiver, Req the request of the sender. Addr and
// Key identify the sender's memory; if both are empty, the receiver must request fragments. UserHeader is
// the header of an active message.
type RTS struct {
	Header, EP, Req, Addr, Size uint64
	Opcode                      uint8
	Key, UserHeader             []byte
}

// AM returns the AM that Header has, whose data are not there.
func (m *RTS) AM() AM {
	return AM{ID: uint16(m.Header), Flags: uint16(m.Header >> 16), Header: m.UserHeader}
}

// DecodeRTS decodes a message of IDRTS. An opcode that is not known is malformed.
func DecodeRTS(b []byte) (m RTS, ok bool) {
	if len(b) < RTSLen {
		return m, false
	}
	m = RTS{Header: le.Uint64(b), EP: le.Uint64(b[8:]), Req: le.Uint64(b[16:]), Addr: le.Uint64(b[24:]),
		Size: le.Uint64(b[32:]), Opcode: b[40], Key: b[RTSLen:]}
	if m.Opcode == RTSOpcodeAM {
		n := m.Header >> 32
		if n > uint64(len(m.Key)) {
			return m, false
		}
		at := len(m.Key) - int(n)
		m.Key, m.UserHeader = m.Key[:at:at], m.Key[at:]
	}
	return m, m.Opcode <= RTSOpcodeRMA
}

// AppendRTS appends the message.
func AppendRTS(b []byte, m *RTS) []byte {
	b = append(appendWords(b, m.Header, m.EP, m.Req, m.Addr, m.Size), m.Opcode)
	return append(append(b, m.Key...), m.UserHeader...)
}

// RTR requests the bytes from Offset from the sender of a rendezvous (IDRTR): as fragments if Addr is 0,
// otherwise by puts to Addr, whose key is Key. Sender and Receiver are requests.
type RTR struct {
	Sender, Receiver, Addr, Size, Offset uint64
	Key                                  []byte
}

// DecodeRTR decodes a message of IDRTR.
func DecodeRTR(b []byte) (m RTR, ok bool) {
	if len(b) < RTRLen {
		return m, false
	}
	return RTR{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:]), b[RTRLen:]}, true
}

// AppendRTR appends the message.
func AppendRTR(b []byte, m *RTR) []byte {
	return append(appendWords(b, m.Sender, m.Receiver, m.Addr, m.Size, m.Offset), m.Key...)
}

// Stream is bytes of a stream to an endpoint of the receiver (IDStream).
type Stream struct {
	EP   uint64
	Data []byte
}

// DecodeStream decodes a message of IDStream.
func DecodeStream(b []byte) (m Stream, ok bool) {
	if len(b) < StreamLen {
		return m, false
	}
	return Stream{le.Uint64(b), b[StreamLen:]}, true
}

// AppendStream appends the header; the data follow.
func AppendStream(b []byte, m Stream) []byte { return le.AppendUint64(b, m.EP) }

// Put writes Data to memory of the receiver (IDPut), which replies with a completion. EP is the
// endpoint of the receiver.
type Put struct {
	Addr, EP uint64
	Memory   uint32 // type of the memory
	Data     []byte
}

// DecodePut decodes a message of IDPut.
func DecodePut(b []byte) (m Put, ok bool) {
	if len(b) < PutLen {
		return m, false
	}
	return Put{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), b[PutLen:]}, true
}

// AppendPut appends the header; the data follow.
func AppendPut(b []byte, m Put) []byte {
	return le.AppendUint32(appendWords(b, m.Addr, m.EP), m.Memory)
}

// GetRequest requests memory of the receiver (IDGetRequest), which replies with fragments that contain Req.
type GetRequest struct {
	Addr, Size, EP, Req uint64
	Memory              uint32
}

// DecodeGetRequest decodes a message of IDGetRequest.
func DecodeGetRequest(b []byte) (m GetRequest, ok bool) {
	if len(b) != GetRequestLen {
		return m, false
	}
	return GetRequest{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint32(b[32:])}, true
}

// AppendGetRequest appends the message.
func AppendGetRequest(b []byte, m *GetRequest) []byte {
	return le.AppendUint32(appendWords(b, m.Addr, m.Size, m.EP, m.Req), m.Memory)
}

// Atomic applies an operation to memory of the receiver (IDAtomic). If Req is 0 the reply is a
// completion, else the old value. Op is a number of UCT: add, and, or, xor, swap, cswap from 0 on.
// UCX aborts its process for a Size that is not 4 or 8 and for an unknown Op. Compare is used by cswap.
type Atomic struct {
	Addr, EP, Req  uint64
	Size           int // bytes: 4 or 8
	Op             uint8
	Value, Compare uint64
}

// OpCSwap is the number of compare-and-swap, and the largest one.
const OpCSwap = 5

// operands returns how many operands of Size bytes follow.
func (m *Atomic) operands() int {
	if m.Op == OpCSwap {
		return 2
	}
	return 1
}

// DecodeAtomic decodes a message of IDAtomic. A size or operation that does not exist is malformed.
func DecodeAtomic(b []byte) (m Atomic, ok bool) {
	if len(b) < AtomicLen {
		return m, false
	}
	m = Atomic{Addr: le.Uint64(b), EP: le.Uint64(b[8:]), Req: le.Uint64(b[16:]), Size: int(b[24]), Op: b[25]}
	rest := b[AtomicLen:]
	if m.Size != 4 && m.Size != 8 || m.Op > OpCSwap || len(rest) != m.operands()*m.Size {
		return m, false
	}
	m.Value = readWord(rest, m.Size)
	if m.Op == OpCSwap {
		m.Compare, m.Value = m.Value, readWord(rest[m.Size:], m.Size)
	}
	return m, true
}

// AppendAtomic appends the message.
func AppendAtomic(b []byte, m *Atomic) []byte {
	b = append(appendWords(b, m.Addr, m.EP, m.Req), byte(m.Size), m.Op)
	if m.Op == OpCSwap {
		b = appendWord(b, m.Compare, m.Size)
	}
	return appendWord(b, m.Value, m.Size)
}

// AtomicReply is the old value of a word of 4 or 8 bytes (IDAtomicReply).
type AtomicReply struct {
	Req   uint64
	Size  int
	Value uint64
}

// DecodeAtomicReply decodes a message of IDAtomicReply.
func DecodeAtomicReply(b []byte) (m AtomicReply, ok bool) {
	n := len(b) - AtomicReplyLen
	if n != 4 && n != 8 {
		return m, false
	}
	return AtomicReply{le.Uint64(b), n, readWord(b[AtomicReplyLen:], n)}, true
}

// AppendAtomicReply appends the message.
func AppendAtomicReply(b []byte, m AtomicReply) []byte {
	return appendWord(le.AppendUint64(b, m.Req), m.Value, m.Size)
}

// DecodeCompletion decodes a message of IDCompletion: the endpoint of the initiator, one of whose puts
// or atomics without result has completed.
func DecodeCompletion(b []byte) (ep uint64, ok bool) {
	if len(b) != 8 {
		return 0, false
	}
	return le.Uint64(b), true
}

// AppendCompletion appends the message.
func AppendCompletion(b []byte, ep uint64) []byte { return le.AppendUint64(b, ep) }

// AM is an active message in one piece (IDAM, IDAMReply) or the first piece of one (IDAMFirst). Header
// is the user's, which travels behind the data. EP is the endpoint of the receiver: there are
// replies to it for IDAMReply.
type AM struct {
	ID, Flags    uint16
	Data, Header []byte
	EP           uint64
	MsgID, Total uint64 // of IDAMFirst
}

// DecodeAM decodes a message of IDAM.
func DecodeAM(b []byte) (m AM, ok bool) {
	if len(b) < AMLen {
		return m, false
	}
	n := uint64(le.Uint32(b[4:]))
	m.ID, m.Flags = le.Uint16(b), le.Uint16(b[2:])
	b = b[AMLen:]
	if n > uint64(len(b)) {
		return m, false
	}
	at := len(b) - int(n)
	m.Data, m.Header = b[:at:at], b[at:]
	m.Total = uint64(at)
	return m, true
}

// DecodeAMReply decodes a message of IDAMReply.
func DecodeAMReply(b []byte) (m AM, ok bool) {
	at := len(b) - AMReplyTail
	if at < 0 {
		return m, false
	}
	m, ok = DecodeAM(b[:at:at])
	m.EP = le.Uint64(b[at:])
	return m, ok
}

// DecodeAMFirst decodes a message of IDAMFirst.
func DecodeAMFirst(b []byte) (m AM, ok bool) {
	at := len(b) - AMFirstTail
	if at < 0 {
		return m, false
	}
	m, ok = DecodeAM(b[:at:at])
	m.MsgID, m.EP, m.Total = le.Uint64(b[at:]), le.Uint64(b[at+8:]), le.Uint64(b[at+16:])
	return m, ok && uint64(len(m.Data)) <= m.Total
}

// AppendAMHead appends what is before the data. headerLen is the length of the user's header, which
// follows the data.
func AppendAMHead(b []byte, id, flags uint16, headerLen int) []byte {
	b = le.AppendUint16(le.AppendUint16(b, id), flags)
	return le.AppendUint32(b, uint32(headerLen))
}

// AppendAMReplyTail appends what is behind the user's header of an IDAMReply.
func AppendAMReplyTail(b []byte, ep uint64) []byte { return le.AppendUint64(b, ep) }

// AppendAMFirstTail appends what is behind the user's header of an IDAMFirst.
func AppendAMFirstTail(b []byte, msgID, ep, total uint64) []byte {
	return appendWords(b, msgID, ep, total)
}

// AMMiddle is a piece of an active message (IDAMMiddle). MsgID is unique among the messages of EP, an
// endpoint of the receiver.
type AMMiddle struct {
	Offset, MsgID, EP uint64
	Data              []byte
}

// DecodeAMMiddle decodes a message of IDAMMiddle.
func DecodeAMMiddle(b []byte) (m AMMiddle, ok bool) {
	at := len(b) - AMMiddleTail
	if at < AMMiddleLen {
		return m, false
	}
	return AMMiddle{le.Uint64(b), le.Uint64(b[at:]), le.Uint64(b[at+8:]), b[AMMiddleLen:at:at]}, true
}

// AppendAMMiddleHead appends what is before the data of an IDAMMiddle.
func AppendAMMiddleHead(b []byte, offset uint64) []byte { return le.AppendUint64(b, offset) }

// AppendAMMiddleTail appends what is behind the data of an IDAMMiddle.
func AppendAMMiddleTail(b []byte, msgID, ep uint64) []byte { return appendWords(b, msgID, ep) }

func appendWords(b []byte, words ...uint64) []byte {
	for _, w := range words {
		b = le.AppendUint64(b, w)
	}
	return b
}

func appendWord(b []byte, v uint64, size int) []byte {
	if size == 4 {
		return le.AppendUint32(b, uint32(v))
	}
	return le.AppendUint64(b, v)
}

func readWord(b []byte, size int) uint64 {
	if size == 4 {
		return uint64(le.Uint32(b))
	}
	return le.Uint64(b)
}
