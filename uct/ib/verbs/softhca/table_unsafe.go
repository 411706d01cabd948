package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/xrcdomain"
)

// The table segment tells peers what they may do. Its owner writes it, peers map
// it read-only. Little endian, as both sides run on one machine.
//
//	0            header: magic, version; cookie (8 to 23); generation (24); closed (32);
//	             the shared XRC domains that the device is in (64 to 4095)
//	tableQPs     maxQP entries of 64 bytes, by the low 16 bits of the QPN
//	tableMRs     maxMR entries of 64 bytes, by the key without its variant byte
//	tableSRQs    maxXRCSRQ entries of 64 bytes, of XRC SRQs, by the low 16 bits of the number
//	tableLen     on the shm fabric: shownRecvs receives of each XRC SRQ, 64 bytes each
const (
	tableMagic   = 0x6763_7874 // "gcxt"
	tableVersion = 9

	maxQP = 1 << 16
	maxMR = 1 << 18

	maxXRCSRQ = 1 << 16

	entryLen = 64

	tableQPs  = 4096
	tableMRs  = tableQPs + maxQP*entryLen
	tableSRQs = tableMRs + maxMR*entryLen
	tableLen  = tableSRQs + maxXRCSRQ*entryLen
	// sharedTableLen is its length on the shm fabric.
	sharedTableLen = tableLen + maxXRCSRQ*shownRecvs*entryLen
)

// qpEntry is what an initiator must know of a responder QP. Fields other than
// state change only while state is below RTR.
type qpEntry struct {
	qpn     atomic.Uint32 // 0: free
	state   atomic.Uint32 // stateWord; stored last, so it publishes the rest
	destQPN atomic.Uint32
	access  atomic.Uint32 // verbs.Access granted through this QP
	pdn     atomic.Uint32
	service atomic.Uint32    // verbs.QPType
	destGID [2]atomic.Uint64 // the peer's GID, as two words in memory order
	xrcdn   atomic.Uint32    // of an XRC target: its domain on this device
	// rnrTimer is the code of the delay after a message found no receive.
	rnrTimer atomic.Uint32
	// Of a target in a shared domain, where all devices see one entry: what its responders
	// there need besides.
	rqPSN   atomic.Uint32
	pathMTU atomic.Uint32 // verbs.MTU
	fault   atomic.Uint32 // verbs.EventType that the devices are told of, in ERR; 0: none
	_       [4]byte
}

// stateWord is the state of a QP as peers see it, and of which connection, if it is a target
// in a shared domain: the epoch is another one after each reset and connection.
//
//	31..8 epoch    7..0 verbs.QPState
type stateWord uint32

const epochShift = 8

// state is ERR if it is none: others can write to the directory of a domain.
func (w stateWord) state() verbs.QPState { return min(verbs.QPState(w), verbs.QPStateErr) }

func (w stateWord) epoch() uint32 { return uint32(w >> epochShift) }

// errorOf is ERR of a connection.
func errorOf(epoch uint32) stateWord { return stateWord(epoch<<epochShift | uint32(verbs.QPStateErr)) }

// to is the word after a change of state.
func (w stateWord) to(s verbs.QPState) stateWord {
	epoch := w.epoch()
	if s == verbs.QPStateReset || s == verbs.QPStateRTR {
		epoch++
	}
	return stateWord(epoch<<epochShift | uint32(s))
}

// receiving reports whether a QP in a state receives from its peer.
func receiving(s verbs.QPState) bool {
	return s == verbs.QPStateRTS || s == verbs.QPStateRTR || s == verbs.QPStateSQD
}

// mrEntry is what an initiator must know of a memory region. key is stored last
// when the region appears, and cleared first when it goes.
type mrEntry struct {
	key    atomic.Uint32 // the full rkey; 0: none
	access atomic.Uint32
	pdn    atomic.Uint32
	kind   atomic.Uint32 // memArena or memPrivate
	guard.Extent
	_ [24]byte
}

// srqEntry is what an initiator must know of an XRC SRQ. srqn is stored last when the
// queue appears, and cleared first when it goes.
type srqEntry struct {
	srqn   atomic.Uint32 // 0: none
	xrcdn  atomic.Uint32
	pdn    atomic.Uint32
	posted atomic.Uint32 // receives shown so far, modulo 2^16; stored after them
	inode  domainKey     // of a shared domain; 0: private
	_      [32]byte
}

// shownRecvs is how many receives of an XRC SRQ peers see: as many messages can arrive
// while the process of the queue does not run.
const shownRecvs = 32

// recvShown is a receive of an XRC SRQ as peers see it.
type recvShown struct {
	seq  uint32 // its number in the queue, modulo 2^16
	nsge uint32 // recvHidden: the target alone can fill it
	sge  [shownSGEs]verbs.SGE
	_    [8]byte
}

const (
	shownSGEs  = 3
	recvHidden = 1<<32 - 1
)

// Kinds of registered memory.
const (
	memArena   = 1 // in the arena segment: peers map it
	memPrivate = 2 // elsewhere: peers use cross-memory attach, or ask
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(qpEntry{})-entryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(mrEntry{})-entryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(srqEntry{})-entryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(recvShown{})-entryLen]
)

// table is a view of a table segment: the own one, or a peer's.
type table struct{ base unsafe.Pointer }

func newTable(mem []byte) (table, bool) {
	if len(mem) < tableLen {
		return table{}, false
	}
	return table{unsafe.Pointer(unsafe.SliceData(mem))}, true
}

func (t table) header() *[2]atomic.Uint32 { return (*[2]atomic.Uint32)(t.base) }

// generation counts what the owner has taken back: it is raised after each change of an
// entry that denies what the entry allowed, and before the owner waits for guards. Who
// has raised its guard and finds the generation of a check that it made before need
// not check again.
func (t table) generation() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(t.base, 24)) }

// closed is not 0 when the owner has closed the device in order: a peer whose link goes
// down tells that from a death by it.
func (t table) closed() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Add(t.base, 32)) }

// cookie is the address and the value of a word by which peers recognise this
// process: see cma.Vec.Probe.
func (t table) cookie() *[2]atomic.Uint64 {
	return (*[2]atomic.Uint64)(unsafe.Add(t.base, 8))
}

// setCookie publishes word, whose value is random.
func (t table) setCookie(word *uint64) {
	t.cookie()[0].Store(uint64(uintptr(unsafe.Pointer(word))))
	t.cookie()[1].Store(*word)
}

// maxSharedDomains is how many shared domains a device can be in: as many as there is
// room for in the header.
const (
	tableDomains     = 64
	maxSharedDomains = (tableQPs - tableDomains) / 16
)

// domainKey names a shared domain by its inode: device and number. 0: none.
type domainKey [2]atomic.Uint64

func (t table) sharedDomain(i int) *domainKey {
	return (*domainKey)(unsafe.Add(t.base, tableDomains+i*16))
}

// load is the key of the domain; false if there is none.
func (k *domainKey) load() (key xrcdomain.Key, ok bool) {
	key = xrcdomain.Key{Ino: k[1].Load(), Dev: k[0].Load()}
	return key, key.Ino != 0
}

// store makes it another domain; the number of the inode last, which is never 0.
func (k *domainKey) store(key xrcdomain.Key) {
	k[1].Store(0)
	k[0].Store(key.Dev)
	k[1].Store(key.Ino)
}

// is reports whether it is a domain.
func (k *domainKey) is(key xrcdomain.Key) bool {
	return k[1].Load() == key.Ino && k[0].Load() == key.Dev
}

// targetEntry is the entry of a target in a shared domain: where all its devices look.
func targetEntry(v *xrcdomain.View, number uint32) *qpEntry {
	return (*qpEntry)(unsafe.Pointer(v.Area(number)))
}

// eachTarget calls f with the entries of the targets of a shared domain.
func eachTarget(v *xrcdomain.View, f func(*qpEntry)) {
	v.EachArea(func(a *xrcdomain.Area) { f((*qpEntry)(unsafe.Pointer(a))) })
}

var _ = [1]struct{}{}[unsafe.Sizeof(xrcdomain.Area{})-entryLen]

func (t table) format() {
	t.generation().Store(1)
	t.header()[1].Store(tableVersion)
	t.header()[0].Store(tableMagic)
}

func (t table) valid() bool {
	return t.header()[0].Load() == tableMagic && t.header()[1].Load() == tableVersion
}

// qp returns the entry for a QPN; the caller compares entry.qpn.
func (t table) qp(qpn uint32) *qpEntry {
	return (*qpEntry)(unsafe.Add(t.base, tableQPs+uintptr(qpn%maxQP)*entryLen))
}

// mr returns the entry for a key; the caller compares entry.key.
func (t table) mr(key uint32) *mrEntry {
	return (*mrEntry)(unsafe.Add(t.base, tableMRs+uintptr(key>>8%maxMR)*entryLen))
}

// srq returns the entry for the number of an XRC SRQ; the caller compares entry.srqn.
func (t table) srq(srqn uint32) *srqEntry {
	return (*srqEntry)(unsafe.Add(t.base, tableSRQs+uintptr(srqn%maxXRCSRQ)*entryLen))
}

// recv returns receive seq of an XRC SRQ, on the shm fabric.
func (t table) recv(srqn uint32, seq uint16) *recvShown {
	i := uintptr(srqn%maxXRCSRQ)*shownRecvs + uintptr(seq%shownRecvs)
	return (*recvShown)(unsafe.Add(t.base, tableLen+i*entryLen))
}

func (e *qpEntry) setDestGID(g verbs.GID) {
	w := gidWords(g)
	e.destGID[0].Store(w[0])
	e.destGID[1].Store(w[1])
}

// peer is the device that the QP of the entry is connected to.
func (e *qpEntry) peer() [2]uint64 { return [2]uint64{e.destGID[0].Load(), e.destGID[1].Load()} }

func (e *qpEntry) load() stateWord { return stateWord(e.state.Load()) }

// change stores the word that comes after w; false if it is not w any more.
func (e *qpEntry) change(w stateWord, to verbs.QPState) bool {
	return e.state.CompareAndSwap(uint32(w), uint32(w.to(to)))
}

// accepts reports whether the entry is QP qpn, ready to receive from the QP
// srcQPN at the port src. state is loaded first, as it is stored last.
func (e *qpEntry) accepts(qpn, srcQPN uint32, src *[2]uint64) bool {
	return receiving(verbs.QPState(e.state.Load())) && e.qpn.Load() == qpn && e.from(srcQPN, src)
}

// from reports whether the entry's QP is connected to the QP srcQPN at the port src.
func (e *qpEntry) from(srcQPN uint32, src *[2]uint64) bool {
	return e.destQPN.Load() == srcQPN && e.destGID[0].Load() == src[0] && e.destGID[1].Load() == src[1]
}

// destroyed reports whether the entry was of QP qpn, which has existed, and is not any more.
func (e *qpEntry) destroyed(qpn uint32) bool { return e.qpn.Load() != qpn }

// gidWords is a GID as two words in memory order, for comparing.
func gidWords(g verbs.GID) [2]uint64 { return *(*[2]uint64)(unsafe.Pointer(&g)) }
