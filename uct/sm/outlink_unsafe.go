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

// outLink is the connection of an iface to a peer's, for all EPs that lead there: one
// ring, one guard. It belongs to the owner of the iface.
type outLink struct {
	tx          producer // without slots until it is connected, and when it is closed
	guard       *guard.Word
	fullBarrier bool // a visit begins with a full barrier
	grant       grant
	table       table
	arena       unsafe.Pointer
	arenaLen    uint64         // of what is mapped
	hold        atomic.Uint32  // nonzero: nothing may be posted now; hold bits
	ctl         *control       // the peer's, in the arena
	attn        *atomic.Uint32 // the own attention word there
	wakeFD      int            // the peer's

	sleepsSeen uint32 // the peer's count of sleeps, see lookAgain
	sentAwake  int    // messages since then

	it        *Iface
	gid       portGID
	state     epState          // of EPs that join: epIdle, epDialing or epUp
	out       *attach.Outbound // in epUp, until it is closed
	eps       []*EP
	arenaSeg  *memfd.Segment
	cause     error // why lost was called; nil: the peer is gone
	ctlIndex  uint32
	attnIndex uint32
	cmaErr    error // why cross-memory attach is not used; nil: it is
	pid       int
	vec       cma.Vec
}

// Bits of outLink.hold.
const (
	holdDown        = 1 << iota // the peer is gone: Progress will fail the EPs; by any goroutine
	holdUnconnected             // there are no slots
)

func newOutLink(it *Iface, gid portGID) *outLink {
	l := &outLink{it: it, gid: gid, grant: noGrant}
	l.hold.Store(holdUnconnected)
	return l
}

// unconnected is the link of EPs that have none any more.
var unconnected = newOutLink(nil, portGID{})

// dialed is how a dial ended.
type dialed struct {
	link *outLink
	out  *attach.Outbound
	err  error
}

// join has a new EP use the link to its peer.
func (it *Iface) join(gid portGID, e *EP) {
	l := it.links[gid]
	if l == nil {
		l = newOutLink(it, gid)
		it.links[gid] = l
	}
	l.eps = append(l.eps, e)
	e.outLink, e.state = l, l.state
}

// setState says of all EPs how far the link is.
func (l *outLink) setState(st epState) {
	l.state = st
	for _, e := range l.eps {
		e.state = st
	}
}

// dial starts to connect.
func (l *outLink) dial() {
	l.setState(epDialing)
	it := l.it
	it.dials.Go(func() {
		out, err := it.port.Dial(context.Background(), l.gid)
		it.mu.Lock()
		it.dialed = append(it.dialed, dialed{l, out, err})
		it.mu.Unlock()
		it.post()
	})
}

// connected takes the result of a dial over. It returns how many EPs it was for; none,
// if all were closed meanwhile.
func (l *outLink) connected(out *attach.Outbound, err error) int {
	if err == nil {
		if len(l.eps) > 0 {
			err = l.adopt(out)
		}
		if len(l.eps) == 0 || err != nil {
			_ = out.Close() // unmapping what is mapped does not fail
		}
	}
	if len(l.eps) == 0 || err != nil {
		return l.fail(err)
	}
	l.setState(epUp)
	out.AfterDown(l.lost)
	return len(l.eps)
}

// adopt checks what the peer offers, and tells it what it will get. On error out is the
// caller's to close.
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

// begin opens the ring and says what is in it.
func (l *outLink) begin(hdr *linkHeader) {
	cfg := &l.it.cfg
	fenced := !l.it.md.expedited || l.table.header().expedited.Load() == 0
	segLen := (int(cfg.SegSize) + 63) &^ 63
	l.guard, l.fullBarrier = &hdr.guard, fenced
	l.tx = newProducer(l.out.Seg.Bytes(), cfg.FIFOSize, cfg.Segs, segLen, fenced)
	l.hold.And(^uint32(holdUnconnected))
	hdr.depth, hdr.segs, hdr.segLen, hdr.dialerControl = uint32(cfg.FIFOSize), uint32(cfg.Segs), uint32(segLen), l.it.ctlIndex
	race.Release(unsafe.Pointer(&order))
	hdr.ready.Store(1)
	l.notifyIfAsleep()
}

// setArena takes over what is mapped of the arena.
func (l *outLink) setArena() {
	mem := l.arenaSeg.Bytes()
	l.arena, l.arenaLen, l.grant = unsafe.Pointer(unsafe.SliceData(mem)), uint64(len(mem)), noGrant
	l.ctl = controlAt(mem, l.ctlIndex)
	l.attn = attentionAt(l.ctl, l.attnIndex)
}

// extended maps more of the arena if the key allows the access and leads to where nothing
// is mapped yet; true if it has, and the caller tries again. No guard is up.
func (l *outLink) extended(key, raddr, n uint64, need uct.Access) bool {
	t := l.table.entry(key)
	off, ok := t.covers(key, raddr, n, need)
	at, limit := t.Start.Load()+off, uint64(l.arenaSeg.FileLen())
	if !ok || t.kind.Load() != memArena || at > limit || n > limit-at || at+n <= l.arenaLen {
		return false
	}
	if err := l.arenaSeg.Grow(int(at + n)); err != nil {
		l.cause = noRoom(l.pid, err)
		l.lost()
		return false
	}
	l.setArena()
	return true
}

func noRoom(pid int, err error) error {
	return fmt.Errorf("%w: to map the memory that process %d has allocated: %w", uct.ErrNoMemory, pid, err)
}

// lost has Progress fail the EPs. Any goroutine may call it.
func (l *outLink) lost() {
	l.hold.Or(holdDown)
	l.it.post()
}

// whyGone tells a peer that has hung up in order from one that died, or that could not
// read what this side wrote. The link is mapped.
func (l *outLink) whyGone() error {
	if l.tx.hdr.left.Load() != 0 {
		return ucs.ErrPeerClosed
	}
	return ucs.ErrConnReset
}

// isLost reports that Progress has to fail the EPs.
func (l *outLink) isLost() bool { return l.hold.Load()&holdDown != 0 && l.out != nil }

// failLost fails the EPs of links whose peers are gone.
func (it *Iface) failLost() (n int) {
	for _, l := range it.links {
		if l.isLost() {
			n += l.fail(cmp.Or(l.cause, l.whyGone()))
		}
	}
	return n
}

// fail fails all EPs, the last of which closes the link. EPs that are opened meanwhile
// dial anew.
func (l *outLink) fail(err error) (n int) {
	l.unlist()
	for ; len(l.eps) > 0; n++ {
		l.eps[0].fail(err)
	}
	return n
}

// unlist has EPs to the same peer not join the link any more.
func (l *outLink) unlist() {
	if l.it.links[l.gid] == l {
		delete(l.it.links, l.gid)
	}
}

// leave takes an EP off the link, and closes the link after the last one.
func (l *outLink) leave(e *EP) {
	l.eps = slices.DeleteFunc(l.eps, func(x *EP) bool { return x == e })
	if len(l.eps) > 0 {
		return
	}
	l.unlist()
	if l.out == nil {
		return
	}
	l.tx.slots, l.grant = nil, noGrant
	l.hold.Or(holdUnconnected)
	_ = l.out.Close() // unmapping what is mapped does not fail
	l.out = nil
}
