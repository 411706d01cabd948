package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/spin"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A link segment serves one direction: a dialer reaches an acceptor.
//
//	0             linkHeader
//	linkReq       ring: dialer to acceptor
//	linkResp      ring: acceptor to dialer
//	linkGuards    maxGuards guards: the dialer is accessing memory
const (
	linkReq    = 4096
	linkResp   = linkReq + ring.Span
	linkGuards = linkResp + ring.Span
	linkLen    = linkGuards + maxGuards*guardLen

	maxGuards = 1 << 14 // QPs of one process connected to one other
	guardLen  = 64
)

// linkHeader is at the start of the link segment.
type linkHeader struct {
	guardsUsed atomic.Uint32 // guards below this index may be up
	_          [60]byte
	starved    atomic.Uint32 // not 0: QPs of the dialer wait for receives; see starve
}

// control is the first page of an arena: peers raise attention there.
type control struct {
	attention atomic.Uint32 // attn* bits
	_         [60]byte
	sleeping  atomic.Uint32 // odd: no thread reads attention; see isAsleep
	_         [60]byte
	starving  atomic.Uint32 // not 0: QPs of some peer wait for receives; see starve
	_         [60]byte
}

// linkMem is a view of a link segment.
type linkMem struct{ base unsafe.Pointer }

func (m linkMem) header() *linkHeader { return (*linkHeader)(m.base) }

func (m linkMem) guard(slot uint32) *queueGuard {
	return (*queueGuard)(unsafe.Add(m.base, linkGuards+uintptr(slot%maxGuards)*guardLen))
}

func (m linkMem) producer(at uintptr) ring.Producer {
	return ring.NewProducer(unsafe.Add(m.base, at))
}

func (m linkMem) consumer(at uintptr) ring.Consumer {
	return ring.NewConsumer(unsafe.Add(m.base, at))
}

// guards returns the number of guards that may be in use.
func (m linkMem) guards() uint32 { return min(m.header().guardsUsed.Load(), maxGuards) }

// Link states.
const (
	linkDialing = iota
	linkUp
	linkDown
)

// linkEnd is the reason why a link is down.
type linkEnd uint32

const (
	endNone   linkEnd = iota // it is not down
	endBusy                  // the peer did not accept it, but may be alive
	endGone                  // the port does not exist, or the peer has hung up
	endClosed                // the peer has closed its device gracefully
	endBroken                // the peer has sent a malformed packet
)

// outLink is the direction to one peer. Its fields are set before state becomes linkUp and
// do not change afterwards. In linkDown the memory that it points to is unmapped as soon
// as no QP uses it: see dropLink. QPs may still refer to the outLink.
type outLink struct {
	hca     *hca
	gid     verbs.GID
	state   atomic.Uint32
	end     atomic.Uint32 // linkEnd; stored before state becomes linkDown
	started int64         // when dialing began
	again   atomic.Int64  // down: time from which the port can be dialed again

	self      bool // the loop fabric: regions are looked up in this device
	table     table.Table
	arena     unsafe.Pointer
	arenaLen  uint64
	ctl       *control     // the peer's
	claims    table.Claims // the peer's; none if the peer does not publish its receives
	wakeFD    int          // the peer's pipe
	pid       int
	cma       bool // cross-memory attach works
	mem       linkMem
	closeFunc func() error

	txLock spin.Mutex // req, guard slots
	req    ring.Producer
	// fullSince is the time when a datagram found the ring full, and fullAt the head of the ring then; under txLock.
	fullSince int64
	fullAt    uint64
	guards    []uint32 // free slots
	rcQPs     int      // RC QPs that are connected over the link, each with a guard; under txLock
	resp      ring.Consumer
	blocked   []*queuePair // waiting for room in req; under txLock
	starved   []*queuePair // waiting for receives; under txLock
	// starvedSpare is reused for the next list of starved QPs; under txLock.
	starvedSpare []*queuePair
	waiters      []*queuePair // waiting for the end of dialing; under hca.runLock
}

// memory checks and resolves a remote access. The guard is up.
func (l *outLink) memory(key uint32, raddr, n uint64, pdn uint32, need verbs.Access) (remote, bool) {
	e := l.table.MR(key)
	if e.Key.Load() != key || key == 0 || e.PDN.Load() != pdn ||
		verbs.Access(e.Access.Load())&need != need {
		return remote{}, false
	}
	off, ok := e.Find(raddr, n)
	if !ok {
		return remote{}, false
	}
	if l.self {
		p := l.hca.regions.find(key, raddr, n, pdn, need)
		return remote{ptr: p}, p != nil
	}
	if e.Kind.Load() != table.InArena {
		return remote{private: true}, true
	}
	at := e.Start.Load() + off
	if at > l.arenaLen || n > l.arenaLen-at {
		return remote{}, false
	}
	return remote{ptr: unsafe.Add(l.arena, at)}, true
}

// remote is memory of a peer: mapped at ptr, or private to the peer.
type remote struct {
	ptr     unsafe.Pointer
	private bool
}

// countQP counts an RC QP that connects; false if all guards are in use.
func (l *outLink) countQP() bool {
	l.txLock.Lock()
	defer l.txLock.Unlock()
	if l.rcQPs == maxGuards {
		return false
	}
	l.rcQPs++
	return true
}

// uncountQP is called when such a QP is no longer connected.
func (l *outLink) uncountQP() {
	l.txLock.Lock()
	l.rcQPs--
	l.txLock.Unlock()
}

// reserveGuard reserves a guard word for a QP; false if all are in use.
func (l *outLink) reserveGuard() (uint32, bool) {
	l.txLock.Lock()
	defer l.txLock.Unlock()
	if n := len(l.guards); n > 0 {
		g := l.guards[n-1]
		l.guards = l.guards[:n-1]
		return g, true
	}
	h := l.mem.header()
	g := h.guardsUsed.Load()
	if g >= maxGuards {
		return 0, false
	}
	h.guardsUsed.Store(g + 1)
	return g, true
}

func (l *outLink) releaseGuard(g uint32) {
	l.txLock.Lock()
	l.guards = append(l.guards, g)
	l.txLock.Unlock()
}

// inLink is the direction from one peer.
type inLink struct {
	hca    *hca
	gid    [2]uint64
	pid    int
	state  atomic.Uint32
	ctl    *control // the peer's
	wakeFD int
	mem    linkMem
	req    ring.Consumer // under hca.driving
	resp   ring.Producer // under hca.driving

	ackDue  bool        // ack is not sent yet; it covers older messages
	ack     ring.Packet // dstQPN and msn
	reading readback

	sameUser  bool        // the peer is a process of this user
	rejected  bool        // the peer has violated the protocol: its ring is not read any more
	hangUp    func()      // notifies the peer of that
	peerStays func() bool // see attach.Link
	closeFunc func() error
}

// call sets bits of a peer's attention word, and wakes its engine if no thread reads the word.
// The caller has published its work before, with an atomic store. A thread that drives clears
// the bits and then reads the rings (see Drive); the engine stores that it sleeps and then reads
// the bits (see park). So the work is always found.
func call(ctl *control, wakeFD int, bits uint32) {
	if ctl.attention.Load()&bits != bits {
		ctl.attention.Or(bits)
	}
	if seq := ctl.sleeping.Load(); isAsleep(seq) {
		wakeOnce(ctl, wakeFD, seq)
	}
}
