package table

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/xrcdomain"
)

// Layout of a table, and how many entries it has; lengths and places in bytes.
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
	// SharedLen is its length on the shm fabric.
	SharedLen = Len + MaxXRCSRQ*ShownRecvs*EntryLen
)

// QP is what an initiator must know of a responder QP. Fields other than
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
	// Of a target in a shared domain, where all devices see one entry: what its responders
	// there need besides.
	RQPSN   atomic.Uint32
	PathMTU atomic.Uint32 // verbs.MTU
	Fault   atomic.Uint32 // verbs.EventType that the devices are told of, in ERR; 0: none
	_       [4]byte
}

// StateWord is the state of a QP as peers see it, and of which connection, if it is a target
// in a shared domain: the epoch is another one after each reset and connection.
//
//	31..8 epoch    7..0 verbs.QPState
type StateWord uint32

const epochShift = 8

// State is ERR if it is none: others can write to the directory of a domain.
func (w StateWord) State() verbs.QPState { return min(verbs.QPState(w), verbs.QPStateErr) }

func (w StateWord) Epoch() uint32 { return uint32(w >> epochShift) }

// ErrorOf is ERR of a connection.
func ErrorOf(epoch uint32) StateWord { return StateWord(epoch<<epochShift | uint32(verbs.QPStateErr)) }

// To is the word after a change of state.
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

// MR is what an initiator must know of a memory region. key is stored last
// when the region appears, and cleared first when it goes.
type MR struct {
	Key    atomic.Uint32 // the full rkey; 0: none
	Access atomic.Uint32
	PDN    atomic.Uint32
	Kind   atomic.Uint32 // memArena or memPrivate
	guard.Extent
	_ [24]byte
}

// SRQ is what an initiator must know of an XRC SRQ. srqn is stored last when the
// queue appears, and cleared first when it goes.
type SRQ struct {
	SRQN   atomic.Uint32 // 0: none
	XRCDN  atomic.Uint32
	PDN    atomic.Uint32
	Posted atomic.Uint32 // receives shown so far, modulo 2^16; stored after them
	Inode  DomainKey     // of a shared domain; 0: private
	_      [32]byte
}

// ShownRecvs is how many receives of an XRC SRQ peers see: as many messages can arrive
// while the process of the queue does not run.
const ShownRecvs = 32

// Recv is a receive of an XRC SRQ as peers see it.
type Recv struct {
	Seq  uint32 // its number in the queue, modulo 2^16
	NSGE uint32 // recvHidden: the target alone can fill it
	SGE  [ShownSGEs]verbs.SGE
	_    [8]byte
}

const (
	ShownSGEs  = 3
	RecvHidden = 1<<32 - 1
)

// Kinds of registered memory.
const (
	InArena = 1 // in the arena segment: peers map it
	Private = 2 // elsewhere: peers use cross-memory attach, or ask
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(QP{})-EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(MR{})-EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(SRQ{})-EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(Recv{})-EntryLen]
)

// Table is a view of a table segment: the own one, or a peer's.
type Table struct{ Base unsafe.Pointer }

func New(mem []byte) (Table, bool) {
	if len(mem) < Len {
		return Table{}, false
	}
	return Table{unsafe.Pointer(unsafe.SliceData(mem))}, true
}

func (t Table) header() *[2]atomic.Uint32 { return (*[2]atomic.Uint32)(t.Base) }

// Generation counts what the owner has taken back: it is raised after each change of an
// entry that denies what the entry allowed, and before the owner waits for guards. Who
// has raised its guard and finds the generation of a check that it made before need
// not check again.
func (t Table) Generation() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(t.Base, 24)) }

// Closed is not 0 when the owner has closed the device in order. A peer reads it when its link goes
// down, to distinguish a close from a death.
func (t Table) Closed() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Add(t.Base, 32)) }

// Cookie is the address and the value of a word by which peers recognise this
// process: see cma.Vec.Probe.
func (t Table) Cookie() *[2]atomic.Uint64 {
	return (*[2]atomic.Uint64)(unsafe.Add(t.Base, 8))
}

// SetCookie publishes word, whose value is random.
func (t Table) SetCookie(word *uint64) {
	t.Cookie()[0].Store(uint64(uintptr(unsafe.Pointer(word))))
	t.Cookie()[1].Store(*word)
}

// MaxSharedDomains is how many shared domains a device can be in: as many as there is
// room for in the header.
const (
	domainsAt        = 64
	MaxSharedDomains = (QPsAt - domainsAt) / 16
)

// DomainKey names a shared domain by its inode: device and number. 0: none.
type DomainKey [2]atomic.Uint64

func (t Table) SharedDomain(i int) *DomainKey {
	return (*DomainKey)(unsafe.Add(t.Base, domainsAt+i*16))
}

// Load is the key of the domain; false if there is none.
func (k *DomainKey) Load() (key xrcdomain.Key, ok bool) {
	key = xrcdomain.Key{Ino: k[1].Load(), Dev: k[0].Load()}
	return key, key.Ino != 0
}

// Store makes it another domain; the number of the inode last, which is never 0.
func (k *DomainKey) Store(key xrcdomain.Key) {
	k[1].Store(0)
	k[0].Store(key.Dev)
	k[1].Store(key.Ino)
}

// Is reports whether it is a domain.
func (k *DomainKey) Is(key xrcdomain.Key) bool {
	return k[1].Load() == key.Ino && k[0].Load() == key.Dev
}

// TargetEntry is the entry of a target in a shared domain: where all its devices look.
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

// Peer is the device that the QP of the entry is connected to.
func (e *QP) Peer() [2]uint64 { return [2]uint64{e.destGID[0].Load(), e.destGID[1].Load()} }

func (e *QP) Load() StateWord { return StateWord(e.State.Load()) }

// Change stores the word that comes after w; false if it is not w any more.
func (e *QP) Change(w StateWord, to verbs.QPState) bool {
	return e.State.CompareAndSwap(uint32(w), uint32(w.To(to)))
}

// Accepts reports whether the entry is of QP qpn, ready to receive from the QP
// srcQPN at the port src. State is loaded first, as it is stored last.
func (e *QP) Accepts(qpn, srcQPN uint32, src *[2]uint64) bool {
	return Receiving(verbs.QPState(e.State.Load())) && e.QPN.Load() == qpn && e.From(srcQPN, src)
}

// From reports whether the entry's QP is connected to the QP srcQPN at the port src.
func (e *QP) From(srcQPN uint32, src *[2]uint64) bool {
	return e.DestQPN.Load() == srcQPN && e.destGID[0].Load() == src[0] && e.destGID[1].Load() == src[1]
}

// Destroyed reports whether the entry was of QP qpn, which has existed, and is not any more.
func (e *QP) Destroyed(qpn uint32) bool { return e.QPN.Load() != qpn }

// GIDWords is a GID as two words in memory order, for comparing.
func GIDWords(g verbs.GID) [2]uint64 { return *(*[2]uint64)(unsafe.Pointer(&g)) }

// FailOf moves the target of an entry to ERR if it is connected to a device: that connection,
// and no later one. False if there is none.
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

// Takes reports whether the initiator may fill the receive with n bytes. What is longer is
// for the target to refuse.
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

// At is where offset off of the message goes, and how many bytes lie together there.
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

// StateTries is more often than members change a target at the same time. A process that
// writes to the directory all the time cannot keep others in a loop.
const StateTries = 1 << 10
