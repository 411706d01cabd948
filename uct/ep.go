package uct

import "time"

import "net/netip"

// EP is one connection. Methods must be called by the goroutine that owns the
// iface.
type EP interface {
	// Ops returns the optional operations of the EP; never nil. It may allocate: the caller should call it once, when
	// the EP is set up, and store the fields that it uses.
	Ops() *Ops
	// Flush requests the remote completion of all operations that were posted on this EP
	// before. (false, nil): all are complete. (true, nil): c fires once when
	// they are. c may be nil to poll. ErrNoResource: add a pending request. Queued
	// pending requests are not posted yet and not included. ErrEPFailed: the EP
	// has failed, and all operations in flight have completed with an error.
	Flush(c *Completion) (pending bool, err error)
	// Fence orders operations: those posted after it take effect on the target after
	// those posted before it, whatever their variants and lengths, and messages
	// posted after it are delivered after the puts and atomics before it. It does not
	// wait. Without a fence put, get and atomics of one EP may take effect in any
	// order; messages are always delivered in order.
	Fence() error
	// AddPending queues r until the EP may have resources again; r.Func then
	// runs from Progress. Requests of one EP run in order, EPs take turns. While
	// requests are queued, direct posts return ErrNoResource, so that no operation
	// overtakes them. ErrBusy if the EP has resources now: post instead.
	// ErrInvalidParam if r is queued already, ErrEPFailed on a failed EP. When an
	// EP fails, its requests are dispatched, and their posts return ErrEPFailed.
	AddPending(r *PendingReq) error
	// PurgePending removes all queued requests and calls f with each, in order.
	// f may queue the request again.
	PurgePending(f func(*PendingReq))
	// Close closes the connection. Operations in flight complete, with
	// StatusCanceled or with their result, from this call, from Progress of the iface or
	// from its Close: the caller may reuse a completion when it has fired, not
	// when Close has returned. If the operations must succeed, call Flush first. The caller must have purged
	// queued pending requests. Idempotent. The peer's EP, if there is one,
	// fails with ErrPeerClosed.
	Close() error
}

// Ops are the classes of operations of an EP; a field is nil if the EP does not have the class. The struct
// does not change, and its methods follow the rules of the EP. A wrapper copies it
// and replaces fields.
type Ops struct {
	AM      AMSender    // iff a bit of CapAM is set
	Put     Putter      // iff a bit of CapPut is set
	Get     Getter      // iff a bit of CapGet is set
	Atomics Atomics     // iff a bit of CapAtomic is set
	Connect EPConnector // iff CapConnectEP
	Check   Checker     // nil if a check is expensive
	Explain Explainer   // may be nil
	Queues  Queuer      // iff CapQueue
	Notify  Notifier    // iff CapNotify, which goes with CapPutBcopy, CapPutZcopy and CapConnectEP
	// Words is not nil iff CapAMWords is set, which requires CapAMShort.
	Words AMWordSender
	// Mapped requires CapGet. It is nil if the transport never maps memory of peers.
	Mapped MappedGetter
	// Map requires CapGet. It is nil if the transport never maps memory of peers.
	Map Mapper
}

// Mapper returns memory of the peer that is mapped into this process, for loads and stores without an operation.
type Mapper interface {
	// Map returns the n > 0 bytes at raddr. The caller must call unmap once. Until then the bytes remain mapped, also if
	// the peer closes the memory or dies, and if the EP, the iface and the MD are closed. When the peer has closed the
	// memory, their content is undefined. The caller may store only if the key permits writes. Any goroutine may call
	// unmap. Errors: ErrNoResource while the EP connects; ErrUnsupported if this memory cannot be
	// mapped; ErrRemoteAccess if the key does not permit reads of the range; ErrEPFailed.
	Map(raddr uint64, n int, key RKey) (mem []byte, unmap func(), err error)
}

// MappedGetter reads memory of the peer that is mapped into this process, for callers that cannot wait
// for a get.
type MappedGetter interface {
	// GetMapped reads into buf, which need not be registered, before it returns. It returns false
	// if the memory is not mapped, the key does not permit the read, or the EP is not connected: the
	// content of buf is then undefined. A get by [Getter] then succeeds or returns the reason.
	GetMapped(buf []byte, raddr uint64, key RKey) bool
}

// Checker checks whether the peer is alive, for transports that do not detect the death of a peer by themselves:
// see CapErrPeerIdle. Without CapCheckDevice a peer that makes no progress for a long time may count as dead.
type Checker interface {
	// Check sends at most one small message, which no handler of the peer receives. (false,
	// nil): the transport knows that the peer is alive. (true, nil): c, which must not be
	// nil, fires with StatusOK when the device or the process of the peer has replied.
	// If the peer is gone, c fires with the reason and the EP fails. Errors: ErrNoResource,
	// also while the EP connects; ErrEPFailed.
	Check(c *Completion) (pending bool, err error)
}

// EPParams are the parameters of NewEP. With addresses, the EP connects to a peer
// iface (CapConnectIface). Without, it connects to a peer EP (CapConnectEP): see
// [EPConnector].
type EPParams struct {
	DeviceAddr []byte // copied
	IfaceAddr  []byte // copied
	Peer       PeerIdentity
	Dial       DialMode
	// Within is the time limit for connecting, for a transport with connections. If this side
	// connects, it fails at the latest after this time, and earlier if the configuration of the transport has a
	// shorter limit. If the peer connects, this side waits at least this time. 0 means the limit of the
	// transport's configuration.
	Within time.Duration
}

// DialMode selects the side that dials the connection of an EP to a peer iface, for a transport with
// connections. A transport without connections ignores it.
type DialMode uint8

const (
	// DialOnUse connects with the first operation, unless the peer has connected before.
	DialOnUse DialMode = iota
	// DialNow begins to connect in NewEP, for a peer whose EP has DialByPeer. Operations return
	// ErrNoResource until the EP is connected, so a failure to connect loses no operation.
	DialNow
	// DialByPeer never dials: the addresses come from the peer, and may be those of a third
	// party. The EP uses a connection that the peer has dialed, or dials within the transport's
	// time limit for connecting. Otherwise the EP fails with ErrTimedOut. Operations return
	// ErrNoResource until it is connected.
	DialByPeer
	// DialedByPeer is DialByPeer, but NewEP returns ErrUnreachable if the peer has not dialed yet.
	DialedByPeer
)

// Trusted reports whether the EP may dial its addresses.
func (m DialMode) Trusted() bool { return m < DialByPeer }

// PeerIdentity is the identity of a peer worker, as the layer above knows it from another connection,
// for example the socket of ucp's Listen and Dial. A transport that can determine the identity of
// the peer of an EP must fail the EP with ErrRejected if it differs. It must not trust claims in the
// address of the peer. The zero value means that nothing is known.
type PeerIdentity struct {
	// Name is the identity in the peer's verified certificate: its first URI, otherwise its first
	// DNS name, otherwise its first IP address, otherwise the common name of its subject. "" if the peer
	// has presented no certificate.
	Name string
	// Addr is the IP address from which the peer has connected, or at which it was reached; the zero Addr
	// if it is not known. It does not authenticate the peer.
	Addr netip.Addr
}

// EPConnector connects an EP of an iface with CapConnectEP.
type EPConnector interface {
	// EPAddr appends the address that the peer passes to Connect.
	EPAddr(b []byte) []byte
	// Connect connects to the peer EP, and checks the addresses. Both sides
	// must call it. The caller may post at once: the transport waits for the
	// peer within its own retry limits.
	Connect(deviceAddr, epAddr []byte) error
}

// AMSender sends active messages. The messages of one EP arrive in order, once each,
// whatever their variants. The payload is the concatenation of header and data, and may be empty.
// An id above MaxAMID is ErrInvalidParam.
type AMSender interface {
	// AMShort sends the 8 bytes of hdr (little endian) and payload. Errors:
	// ErrNoResource, ErrTooLong (8+len > AM.MaxShort), ErrEPFailed.
	AMShort(id uint8, hdr uint64, payload []byte) error
	// AMBcopy calls p once to pack the message into a transport buffer of AM.MaxBcopy
	// bytes. n is the result of p.Pack. After
	// an error p was not called.
	AMBcopy(id uint8, p Packer) (n int, err error)
	// AMZcopy sends hdr, which is copied, and the bytes of iov, which the caller must not
	// modify until c fires; the slice iov itself is not used after the call.
	// Errors: ErrNoResource, ErrTooLong (hdr > AM.MaxHeader, hdr+iov >
	// AM.MaxZcopy, len(iov) > AM.MaxIOV), ErrInvalidParam (a Mem that is missing
	// or does not cover its Buf), ErrEPFailed.
	AMZcopy(id uint8, hdr []byte, iov []IOV, c *Completion) (pending bool, err error)
}

// AMWordSender sends short active messages with a header of two 64-bit words, so that the caller
// need not copy the second word in front of the payload.
type AMWordSender interface {
	// AMWords is AMShort with the header first, whose payload is second (little endian) followed by
	// payload. Errors as AMShort; ErrTooLong if 16+len(payload) > AM.MaxShort.
	AMWords(id uint8, first, second uint64, payload []byte) error
}

// Putter writes remote memory. The range from raddr with the length of the data
// must be in the region of key. A put of no bytes succeeds and accesses nothing.
//
// Remote memory errors, here and in [Getter] and [Atomics]: a transport with
// CapErrRemoteMem reports an access outside the region, with a key that is not
// (or no longer) valid, or without the access right. No memory is accessed. Either the
// call returns ErrRemoteAccess and the EP still works, or the EP fails: the
// operation's completion, if any, gets StatusRemoteAccess (later ones any
// failure), OnError is called, and later operations return ErrEPFailed. Other EPs
// are not affected in either case.
type Putter interface {
	// PutShort writes buf. Errors: ErrNoResource, ErrTooLong (> Put.MaxShort),
	// ErrRemoteAccess, ErrEPFailed.
	PutShort(buf []byte, raddr uint64, key RKey) error
	// PutBcopy writes buf, which is copied. Errors as PutShort, with Put.MaxBcopy.
	PutBcopy(buf []byte, raddr uint64, key RKey) error
	// PutZcopy writes the bytes of iov, in order, to one contiguous range; c fires
	// when the caller may reuse the buffers of iov, which is not remote completion: see Flush.
	// Errors as AMZcopy, with Put's limits.
	PutZcopy(iov []IOV, raddr uint64, key RKey, c *Completion) (pending bool, err error)
}

// Getter reads remote memory.
type Getter interface {
	// GetShort reads into buf before it returns. Errors: ErrNoResource,
	// ErrTooLong (> Get.MaxShort), ErrRemoteAccess, ErrEPFailed.
	GetShort(buf []byte, raddr uint64, key RKey) error
	// GetBcopy reads into buf, which need not be registered. The caller must not use buf
	// until c fires, or until the call returns (false, nil). If the
	// operation fails, the content of buf is undefined. Errors as GetShort, with
	// Get.MaxBcopy.
	GetBcopy(buf []byte, raddr uint64, key RKey, c *Completion) (pending bool, err error)
	// GetZcopy reads IOVLen(iov) bytes into the buffers of iov, which need local
	// write access. They contain the data when c fires. Errors as AMZcopy, with
	// Get's limits.
	GetZcopy(iov []IOV, raddr uint64, key RKey, c *Completion) (pending bool, err error)
}

// Atomics operates on remote words of 4 or 8 bytes, aligned to their size, in the
// target's byte order. ErrInvalidParam if raddr is not aligned or size is not 4
// or 8, ErrUnsupported if the operation is not in AtomicAttr. Results of 4-byte
// operations are zero-extended; the upper half of 4-byte operands is ignored. The
// operations of all EPs on one word are linearizable within AtomicAttr.Domain.
type Atomics interface {
	// AtomicPost applies op with value, without a result. op must not be AtomicCSwap.
	AtomicPost(op AtomicOp, size int, value, raddr uint64, key RKey) error
	// AtomicFetch applies op and stores the old value in *result before c fires.
	// The caller must not use result until then; it must not be on a goroutine's
	// stack. For compare-and-swap use AtomicCSwap.
	AtomicFetch(op AtomicOp, size int, value uint64, result *uint64, raddr uint64, key RKey, c *Completion) (pending bool, err error)
	// AtomicCSwap stores swap if the word equals compare. In both cases it stores the old value in
	// *result. Supported iff AtomicCSwap is in the fetch set.
	AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key RKey, c *Completion) (pending bool, err error)
}

// AtomicOp is an operation on a remote word.
type AtomicOp uint8

// Atomic operations. Requests to a target that executes them contain these values.
const (
	AtomicAdd   AtomicOp = 0
	AtomicAnd   AtomicOp = 1
	AtomicOr    AtomicOp = 2
	AtomicXor   AtomicOp = 3
	AtomicSwap  AtomicOp = 4
	AtomicCSwap AtomicOp = 5
)

var atomicOpNames = [...]string{"add", "and", "or", "xor", "swap", "cswap"}

// String returns UCX's name of the operation.
func (op AtomicOp) String() string {
	if int(op) < len(atomicOpNames) {
		return atomicOpNames[op]
	}
	return "unknown"
}

// Apply returns the new value of a word of size bytes (4 or 8) with the value old. It defines
// the operations. Only AtomicCSwap uses compare.
func (op AtomicOp) Apply(size int, old, compare, value uint64) uint64 {
	mask := ^uint64(0)
	if size == 4 {
		mask = 1<<32 - 1
	}
	old, value = old&mask, value&mask
	switch op {
	case AtomicAdd:
		return (old + value) & mask
	case AtomicAnd:
		return old & value
	case AtomicOr:
		return old | value
	case AtomicXor:
		return old ^ value
	case AtomicSwap:
		return value
	case AtomicCSwap:
		if old == compare&mask {
			return value
		}
	}
	return old
}

// AtomicOps is a set of operations, one bit for each [AtomicOp].
type AtomicOps uint8

// Has reports whether op is in the set.
func (s AtomicOps) Has(op AtomicOp) bool { return s&(1<<op) != 0 }

// String lists the operations of the set, separated by '|'.
func (s AtomicOps) String() string { return joinNames(uint64(s), atomicOpNames[:]) }

// AtomicSet returns the set of the given operations.
func AtomicSet(ops ...AtomicOp) (s AtomicOps) {
	for _, op := range ops {
		s |= 1 << op
	}
	return s
}

// IOV is one element of the buffer list of a zcopy operation.
type IOV struct {
	Buf []byte
	// Mem covers Buf; it may be nil only if MDAttr.NeedMemH is false.
	Mem Mem
}

// IOVLen returns the number of bytes in iov.
func IOVLen(iov []IOV) (n int) {
	for i := range iov {
		n += len(iov[i].Buf)
	}
	return n
}
