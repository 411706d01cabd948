package sm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// outLink is the connection of an iface to a peer iface, for all EPs to that peer. It has one
// ring and one guard. Only the owner of the iface uses it.
type outLink struct {
	tx          producer // without slots until the link is connected, and after it is closed
	guard       *guard.Word
	fullBarrier bool // a visit begins with a full barrier
	grant       grant
	table       table
	arena       unsafe.Pointer
	arenaLen    uint64         // mapped length
	hold        atomic.Uint32  // hold bits; not 0 if no post is possible
	ctl         *control       // control block of the peer, in the arena
	attn        *atomic.Uint32 // attention word of this link there
	wakeFD      int            // wakes the peer

	sleepsSeen uint32 // the peer's count of sleeps, see recheckState
	sentAwake  int    // number of messages since then

	it        *iface
	gid       portGID
	state     epState          // state of EPs that join: epIdle, epDialing or epUp
	out       *attach.Outbound // not nil in epUp, until the link is closed
	eps       []*endpoint
	arenaSeg  *memfd.Segment
	cause     error // the reason why markLost was called; nil if the peer is gone
	ctlIndex  uint32
	attnIndex uint32
	cmaErr    error // the reason why cross-memory attach is not used; nil if it is used
	pid       int
	vec       cma.Vec
}

// Bits of outLink.hold.
const (
	holdDown        = 1 << iota // Progress must fail the EPs; any goroutine may set it
	holdUnconnected             // the link has no slots
)

func newOutLink(it *iface, gid portGID) *outLink {
	l := &outLink{it: it, gid: gid, grant: noGrant}
	l.hold.Store(holdUnconnected)
	return l
}

// unconnected is the link of closed and failed EPs.
var unconnected = newOutLink(nil, portGID{})

// dialed is the result of a dial.
type dialed struct {
	link *outLink
	out  *attach.Outbound
	err  error
}

// join adds a new EP to the link to its peer.
func (it *iface) join(gid portGID, e *endpoint) {
	l := it.links[gid]
	if l == nil {
		l = newOutLink(it, gid)
		it.links[gid] = l
	}
	l.eps = append(l.eps, e)
	e.outLink, e.state = l, l.state
}

// setState sets the state of the link and of all its EPs.
func (l *outLink) setState(st epState) {
	l.state = st
	for _, e := range l.eps {
		e.state = st
	}
}

// dial starts to connect, or connects if the configuration says so. Progress handles the result.
func (l *outLink) dial() {
	l.setState(epDialing)
	if l.it.cfg.DialInPost {
		l.dialNow()
		return
	}
	l.it.dials.Go(l.dialNow)
}

// dialNow connects, and passes the result to Progress. Any goroutine may call it.
func (l *outLink) dialNow() {
	it := l.it
	out, err := it.port.Dial(context.Background(), l.gid)
	it.mu.Lock()
	it.dialed = append(it.dialed, dialed{l, out, err})
	it.mu.Unlock()
	it.post()
}

// connected handles the result of a dial. It returns the number of EPs of the link; 0
// if all were closed in the meantime.
func (l *outLink) connected(out *attach.Outbound, err error) int {
	if err == nil {
		if len(l.eps) > 0 {
			err = l.adopt(out)
		}
		if len(l.eps) == 0 || err != nil {
			_ = out.Close() // cannot fail
		}
	}
	if len(l.eps) == 0 || err != nil {
		return l.fail(err)
	}
	l.setState(epUp)
	out.AfterDown(l.markLost)
	return len(l.eps)
}

// adopt checks the segments of the peer and initializes the link. After an error the
// caller must close out.
func (l *outLink) adopt(out *attach.Outbound) error {
	hdr := headerOf(out.Seg.Bytes())
	l.table = newTable(out.Table.Bytes())
	if len(out.Table.Bytes()) < tableLen || l.table.header().version.Load() != layoutVersion {
		return errSegments
	}
	used := min(l.table.header().arenaUsed.Load(), uint64(out.Arena.FileLen()))
	if err := out.Arena.Grow(int(used)); err != nil {
		return noRoom(out.PeerPID, err)
	}
	l.ctlIndex, l.attnIndex = hdr.acceptorControl, hdr.attention
	l.arenaSeg = out.Arena
	if l.setArena(); l.attn == nil {
		return errSegments
	}
	l.pid = out.PeerPID
	if l.probe(); l.cmaErr != nil && l.it.cfg.CMA == config.Yes {
		return fmt.Errorf("registered memory, with CMA=y: %w", l.cmaErr)
	}
	l.out, l.wakeFD = out, out.WakeFD
	l.begin(hdr)
	return nil
}

var errSegments = fmt.Errorf("%w: segments of the peer", uct.ErrInvalidAddr)

// begin initializes the ring and publishes its dimensions.
func (l *outLink) begin(hdr *linkHeader) {
	cfg := &l.it.cfg
	fenced := !l.it.md.expedited || l.table.header().expedited.Load() == 0
	segLen := (int(cfg.SegSize) + 63) &^ 63
	l.guard, l.fullBarrier = &hdr.guard, fenced
	l.tx = newProducer(l.out.Seg.Bytes(), cfg.FIFOSize, cfg.Segs, segLen, fenced)
	l.hold.And(^uint32(holdUnconnected))
	hdr.depth, hdr.segs, hdr.segLen, hdr.dialerControl = uint32(cfg.FIFOSize), uint32(cfg.Segs), uint32(segLen), l.it.ctlIndex
	race.ReleaseToPeers()
	hdr.ready.Store(1)
	l.notifyIfAsleep()
}

// setArena updates the pointers into the arena after it was mapped.
func (l *outLink) setArena() {
	mem := l.arenaSeg.Bytes()
	l.arena, l.arenaLen, l.grant = unsafe.Pointer(unsafe.SliceData(mem)), uint64(len(mem)), noGrant
	l.ctl = controlAt(mem, l.ctlIndex)
	l.attn = attentionAt(l.ctl, l.attnIndex)
}

// mapMore maps more of the arena if the key permits the access and the memory is not
// mapped yet; true if it has, so that the caller must try again. No guard is set.
func (l *outLink) mapMore(key, raddr, n uint64, need uct.Access) bool {
	t := l.table.entry(key)
	off, ok := t.covers(key, raddr, n, need)
	at, limit := t.Start.Load()+off, uint64(l.arenaSeg.FileLen())
	if !ok || t.kind.Load() != memArena || at > limit || n > limit-at || at+n <= l.arenaLen {
		return false
	}
	if err := l.arenaSeg.Grow(int(at + n)); err != nil {
		l.cause = noRoom(l.pid, err)
		l.markLost()
		return false
	}
	l.setArena()
	return true
}

func noRoom(pid int, err error) error {
	return fmt.Errorf("%w: map memory that process %d has allocated: %w", uct.ErrNoMemory, pid, err)
}

// markLost makes Progress fail the EPs. Any goroutine may call it.
func (l *outLink) markLost() {
	l.hold.Or(holdDown)
	l.it.post()
}

// disconnectReason returns ErrPeerClosed if the peer has closed gracefully, and ErrConnReset if it died, or if it rejected
// the data that this side wrote. The link is mapped.
func (l *outLink) disconnectReason() error {
	if l.tx.hdr.closed.Load() != 0 {
		return ucs.ErrPeerClosed
	}
	return ucs.ErrConnReset
}

// isLost reports whether Progress must fail the EPs.
func (l *outLink) isLost() bool { return l.hold.Load()&holdDown != 0 && l.out != nil }

// failLost fails the EPs of links whose peers are gone.
func (it *iface) failLost() (n int) {
	for _, l := range it.links {
		if l.isLost() {
			n += l.fail(cmp.Or(l.cause, l.disconnectReason()))
		}
	}
	return n
}

// fail fails all EPs; the last one closes the link. EPs that are opened in the meantime
// dial again.
func (l *outLink) fail(err error) (n int) {
	l.unlist()
	for ; len(l.eps) > 0; n++ {
		l.eps[0].fail(err)
	}
	return n
}

// unlist prevents new EPs from joining the link.
func (l *outLink) unlist() {
	if l.it.links[l.gid] == l {
		delete(l.it.links, l.gid)
	}
}

// removeEP removes an EP from the link, and closes the link after the last one.
func (l *outLink) removeEP(e *endpoint) {
	l.eps = slices.DeleteFunc(l.eps, func(x *endpoint) bool { return x == e })
	if len(l.eps) > 0 {
		return
	}
	l.unlist()
	if l.out == nil {
		return
	}
	l.it.traffic.Closed(l.tx.tail, 0)
	l.tx.slots, l.grant = nil, noGrant
	l.hold.Or(holdUnconnected)
	_ = l.out.Close() // cannot fail
	l.out = nil
}
