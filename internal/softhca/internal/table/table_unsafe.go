package table

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Layout of a table, and the numbers of its entries; lengths and offsets in bytes.
const (
	magic   = 0x6763_7874 // "gcxt"
	Version = 9

	MaxQP = 1 << 16
	MaxMR = 1 << 18

	MaxXRCSRQ = 1 << 16

	EntryLen = 64

	QPsAt  = 4096
	MRsAt  = QPsAt + MaxQP*EntryLen
	srqsAt = MRsAt + MaxMR*EntryLen
	Len    = srqsAt + MaxXRCSRQ*EntryLen
	// SharedLen is the length on the shm fabric.
	SharedLen = Len + MaxXRCSRQ*ShownRecvs*EntryLen
)

// QP has the attributes of a responder QP that initiators need. Fields other than
// State change only while the state is below RTR.
type QP struct {
	QPN     atomic.Uint32 // 0: free
	State   atomic.Uint32 // StateWord; stored last, so it publishes the rest
	DestQPN atomic.Uint32
	Access  atomic.Uint32 // verbs.Access granted through this QP
	PDN     atomic.Uint32
	Service atomic.Uint32    // verbs.QPType
	destGID [2]atomic.Uint64 // the peer's GID, as two words in memory order
	XRCDN   atomic.Uint32    // of an XRC target: its domain on this device
	// RNRTimer is the code of the delay after a message found no receive.
	RNRTimer atomic.Uint32
	// Additional attributes of a target in a shared domain, for its responders in all devices.
	RQPSN   atomic.Uint32
	PathMTU atomic.Uint32 // verbs.MTU
	Fault   atomic.Uint32 // verbs.EventType that the devices raise, in ERR; 0: none
	_       [4]byte
}

// StateWord is the published state of a QP. For a target in a shared domain it also identifies the
// connection: the epoch changes with each reset and each connection.
//
//	31..8 epoch    7..0 verbs.QPState
type StateWord uint32

const epochShift = 8

// State returns ERR for an invalid value: other processes can write to the directory of a domain.
func (w StateWord) State() verbs.QPState { return min(verbs.QPState(w), verbs.QPStateErr) }

func (w StateWord) Epoch() uint32 { return uint32(w >> epochShift) }

// ErrorOf returns the word for state ERR of a connection.
func ErrorOf(epoch uint32) StateWord { return StateWord(epoch<<epochShift | uint32(verbs.QPStateErr)) }

// To returns the word after a change of state.
func (w StateWord) To(s verbs.QPState) StateWord {
	epoch := w.Epoch()
	if s == verbs.QPStateReset || s == verbs.QPStateRTR {
		epoch++
	}
	return StateWord(epoch<<epochShift | uint32(s))
}

// Receiving reports whether a QP in a state receives from its peer.
func Receiving(s verbs.QPState) bool {
	return s == verbs.QPStateRTS || s == verbs.QPStateRTR || s == verbs.QPStateSQD
}

// MR has the attributes of a memory region that initiators need. Key is stored last
// when the region is registered, and cleared first when it is revoked.
type MR struct {
	Key    atomic.Uint32 // the full rkey; 0: none
	Access atomic.Uint32
	PDN    atomic.Uint32
	Kind   atomic.Uint32 // InArena or Private
	guard.Extent
	_ [24]byte
}

// SRQ has the attributes of an XRC SRQ that initiators need. SRQN is stored last when the
// queue is created, and cleared first when it is destroyed.
type SRQ struct {
	SRQN   atomic.Uint32 // 0: none
	XRCDN  atomic.Uint32
	PDN    atomic.Uint32
	Posted atomic.Uint32 // number of receives published so far, modulo 2^16; stored after them
	Inode  DomainKey     // of a shared domain; 0: private
	_      [32]byte
}

// ShownRecvs is the maximum number of published receives of an XRC SRQ: so many messages can arrive
// while the process of the queue does not run.
const ShownRecvs = 32

// Recv is a published receive of an XRC SRQ.
type Recv struct {
	Seq  uint32 // its number in the queue, modulo 2^16
	NSGE uint32 // RecvHidden: only the target can fill it
	SGE  [ShownSGEs]verbs.SGE
	_    [8]byte
}

const (
	ShownSGEs  = 3
	RecvHidden = 1<<32 - 1
)

// Values of MR.Kind.
const (
	InArena = 1 // in the arena segment, which peers map
	Private = 2 // elsewhere: peers use cross-memory attach, or send a request
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(QP{})-EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(MR{})-EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(SRQ{})-EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(Recv{})-EntryLen]
)

// Table is a view of a table segment, of this device or of a peer.
type Table struct{ Base unsafe.Pointer }

func New(mem []byte) (Table, bool) {
	if len(mem) < Len {
		return Table{}, false
	}
	return Table{unsafe.Pointer(unsafe.SliceData(mem))}, true
}

func (t Table) header() *[2]atomic.Uint32 { return (*[2]atomic.Uint32)(t.Base) }

// Generation counts the revocations of the owner: the owner increments it after each change of an
// entry that denies an access, and before it waits for guards. If an initiator has its guard up
// and finds the generation of an earlier check, that check is still valid.
func (t Table) Generation() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(t.Base, 24)) }

// Closed is not 0 after the owner has closed the device gracefully. A peer reads it when its link goes
// down, to distinguish a close from a death.
func (t Table) Closed() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Add(t.Base, 32)) }

// Cookie is the address and the value of a word that identifies this process: see cma.Vec.Probe.
func (t Table) Cookie() *[2]atomic.Uint64 {
	return (*[2]atomic.Uint64)(unsafe.Add(t.Base, 8))
}

// SetCookie publishes word, whose value is random.
func (t Table) SetCookie(word *uint64) {
	t.Cookie()[0].Store(uint64(uintptr(unsafe.Pointer(word))))
	t.Cookie()[1].Store(*word)
}

// MaxSharedDomains limits the shared domains of a device: those that fit into the header.
const (
	domainsAt        = 64
	MaxSharedDomains = (QPsAt - domainsAt) / 16
)

// DomainKey identifies a shared domain by its inode: device and number. 0: none.
type DomainKey [2]atomic.Uint64

func (t Table) SharedDomain(i int) *DomainKey {
	return (*DomainKey)(unsafe.Add(t.Base, domainsAt+i*16))
}

// Load returns the key of the domain; false if there is none.
func (k *DomainKey) Load() (key xrcdomain.Key, ok bool) {
	key = xrcdomain.Key{Ino: k[1].Load(), Dev: k[0].Load()}
	return key, key.Ino != 0
}

// Store replaces the key. It stores the inode number, which is never 0, last.
func (k *DomainKey) Store(key xrcdomain.Key) {
	k[1].Store(0)
	k[0].Store(key.Dev)
	k[1].Store(key.Ino)
}

// Is reports whether k is the key of a domain.
func (k *DomainKey) Is(key xrcdomain.Key) bool {
	return k[1].Load() == key.Ino && k[0].Load() == key.Dev
}

// TargetEntry returns the entry of a target in a shared domain, which all its devices use.
func TargetEntry(v *xrcdomain.View, number uint32) *QP {
	return (*QP)(unsafe.Pointer(v.Area(number)))
}

// EachTarget calls f with the entries of the targets of a shared domain.
func EachTarget(v *xrcdomain.View, f func(*QP)) {
	v.EachArea(func(a *xrcdomain.Area) { f((*QP)(unsafe.Pointer(a))) })
}

var _ = [1]struct{}{}[unsafe.Sizeof(xrcdomain.Area{})-EntryLen]

func (t Table) Format() {
	t.Generation().Store(1)
	t.header()[1].Store(Version)
	t.header()[0].Store(magic)
}

func (t Table) Valid() bool {
	return t.header()[0].Load() == magic && t.header()[1].Load() == Version
}

// QP returns the entry for a QPN; the caller compares its QPN.
func (t Table) QP(qpn uint32) *QP {
	return (*QP)(unsafe.Add(t.Base, QPsAt+uintptr(qpn%MaxQP)*EntryLen))
}

// MR returns the entry for a key; the caller compares its Key.
func (t Table) MR(key uint32) *MR {
	return (*MR)(unsafe.Add(t.Base, MRsAt+uintptr(key>>8%MaxMR)*EntryLen))
}

// SRQ returns the entry for the number of an XRC SRQ; the caller compares its SRQN.
func (t Table) SRQ(srqn uint32) *SRQ {
	return (*SRQ)(unsafe.Add(t.Base, srqsAt+uintptr(srqn%MaxXRCSRQ)*EntryLen))
}

// Recv returns receive seq of an XRC SRQ, on the shm fabric.
func (t Table) Recv(srqn uint32, seq uint16) *Recv {
	i := uintptr(srqn%MaxXRCSRQ)*ShownRecvs + uintptr(seq%ShownRecvs)
	return (*Recv)(unsafe.Add(t.Base, Len+i*EntryLen))
}

func (e *QP) SetDestGID(g verbs.GID) {
	w := GIDWords(g)
	e.destGID[0].Store(w[0])
	e.destGID[1].Store(w[1])
}

// Peer returns the GID of the device that the QP is connected to.
func (e *QP) Peer() [2]uint64 { return [2]uint64{e.destGID[0].Load(), e.destGID[1].Load()} }

func (e *QP) Load() StateWord { return StateWord(e.State.Load()) }

// Change replaces the state word w by the one for state to; false if the word has changed.
func (e *QP) Change(w StateWord, to verbs.QPState) bool {
	return e.State.CompareAndSwap(uint32(w), uint32(w.To(to)))
}

// Accepts reports whether the entry is that of QP qpn, ready to receive from the QP
// srcQPN of the device src. State is loaded first, as it is stored last.
func (e *QP) Accepts(qpn, srcQPN uint32, src *[2]uint64) bool {
	return Receiving(verbs.QPState(e.State.Load())) && e.QPN.Load() == qpn && e.From(srcQPN, src)
}

// From reports whether the QP is connected to the QP srcQPN of the device src.
func (e *QP) From(srcQPN uint32, src *[2]uint64) bool {
	return e.DestQPN.Load() == srcQPN && e.destGID[0].Load() == src[0] && e.destGID[1].Load() == src[1]
}

// Destroyed reports whether QP qpn, which has existed in this entry, was destroyed.
func (e *QP) Destroyed(qpn uint32) bool { return e.QPN.Load() != qpn }

// GIDWords returns a GID as two words in memory order, for comparisons.
func GIDWords(g verbs.GID) [2]uint64 { return *(*[2]uint64)(unsafe.Pointer(&g)) }

// FailOf moves a target to ERR if it is connected to the device gid, but does not fail a later
// connection. It reports whether it has changed the state.
func (e *QP) FailOf(gid [2]uint64) bool {
	for range StateTries {
		w := e.Load()
		if !Receiving(w.State()) || e.Peer() != gid {
			return false
		}
		if e.Change(w, verbs.QPStateErr) {
			return true
		}
	}
	return false
}

// Takes reports whether the initiator may fill the receive with n bytes. The target rejects longer
// messages.
func (d *Recv) Takes(n uint64) bool {
	if d.NSGE > ShownSGEs {
		return false
	}
	total := uint64(0)
	for _, s := range d.SGE[:d.NSGE] {
		total += uint64(s.Length)
	}
	return n <= total
}

// At returns the key and address for offset off of the message, and the number of contiguous bytes
// there.
func (d *Recv) At(off uint64) (key uint32, addr, n uint64) {
	for _, s := range d.SGE[:min(d.NSGE, ShownSGEs)] {
		if length := uint64(s.Length); off >= length {
			off -= length
			continue
		}
		return s.LKey, s.Addr + off, uint64(s.Length) - off
	}
	return 0, 0, 0
}

// StateTries limits the tries to change a state word: more than members change a target at the same
// time. So a process that writes to the directory all the time cannot keep others in a loop.
const StateTries = 1 << 10
