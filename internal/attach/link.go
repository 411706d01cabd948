package attach

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// Link is what both ends of a link have. It is up until the peer dies or closes,
// or this side closes.
type Link struct {
	// PeerGID is the GID the peer gave; an acceptor cannot verify it.
	PeerGID [16]byte
	// PeerPID is the kernel's word for the peer's process, in this process's pid
	// namespace; 0 when it is not visible there.
	PeerPID int
	// PeerUID is the peer's effective user.
	PeerUID uint32
	// WakeFD is the write end of the peer's pipe, for Wake; valid until Close. The links of this
	// process to that peer share it.
	WakeFD int

	port   *Port
	conn   *net.UnixConn // that it was made on
	id     linkID
	dialed bool        // by this side
	ownUID uint32      // see peer.own
	other  *Link       // the other end, of a link without a connection: see local.go
	wake   *sharedPipe // WakeFD; nil before the handshake
	segs   []*memfd.Segment
	up     atomic.Bool
	done   chan struct{}
	// peerStays: see PeerStays; stored before up becomes false.
	peerStays atomic.Bool

	counted bool // against MaxLinks; under port.mu

	// peerShares: of a dialer, the acceptor knows which process this is, and so finds the link when it is asked to move
	// it. The PID of a process may be visible to one side only.
	peerShares bool

	// Under processes.Mutex:
	shared      *sharedConn // that carries it; nil during the handshake
	next        *sharedConn // of a dialer: that it moves to
	dialing     *dialSlot   // of a dialer, as long as the link may move
	hasMoved    bool        // of an acceptor
	endedOnNext linkMsgKind // how the peer has ended it, by what it said on next
	endedBy     linkMsgKind // how the peer has ended it; 0: it has not said that
	sentLeft    bool        // this side has hung up
	ended       bool        // this side has closed it, or the peer has ended it

	mu      sync.Mutex
	closed  bool
	hungUp  bool
	awaited bool // Port.Close waits for goDown
	hooks   []func()
}

// own makes a segment one that Close closes, and returns it.
func (l *Link) own(s *memfd.Segment, err error) (*memfd.Segment, error) {
	if err == nil {
		l.segs = append(l.segs, s)
	}
	return s, err
}

// arenaAccess is how a peer's arena is mapped. Huge pages are taken from this user's
// processes only: see memfd.HugePages.
func (l *Link) arenaAccess() memfd.Access {
	if l.PeerUID == uint32(os.Geteuid()) {
		return memfd.ReadWrite | memfd.HugePages
	}
	return memfd.ReadWrite
}

// openWake opens the peer's pipe, for Close to close.
func (l *Link) openWake(fd int) (err error) {
	if l.wake, err = sharePipe(fd); err == nil {
		l.WakeFD = l.wake.fd
	}
	return err
}

// Inbound is a link that a peer dialed.
type Inbound struct {
	*Link
	// Seg is the link segment, created by the peer: mapped for writing.
	Seg *memfd.Segment
	// Control is the first Config.ControlLen bytes of the peer's arena or more, mapped
	// for writing.
	Control *memfd.Segment
}

// Outbound is a link that this side dialed.
type Outbound struct {
	*Link
	// Table is the peer's, mapped for reading.
	Table *memfd.Segment
	// Arena is the peer's, of which the first Config.DialLen bytes or more are mapped for
	// writing.
	Arena *memfd.Segment
	// Seg is the link segment, created by this side: mapped for writing.
	Seg *memfd.Segment
}

func newLink(p *Port, conn *net.UnixConn, who peer, gid [16]byte) *Link {
	l := &Link{PeerGID: gid, PeerPID: who.pid, PeerUID: who.uid, ownUID: who.own, WakeFD: -1,
		port: p, conn: conn, done: make(chan struct{})}
	l.up.Store(true)
	return l
}

// Up reports whether the link is up, as far as is known. Costs one atomic load.
func (l *Link) Up() bool { return l.up.Load() }

// PeerStays reports, of a link that is down, whether the peer has ended it alone and has its
// port still: a dial took it too long, or it has done with the link. False if the port is
// closed, the process is dead or this side was first.
func (l *Link) PeerStays() bool { return l.peerStays.Load() }

// Done is closed when the link goes down, for whatever reason.
func (l *Link) Done() <-chan struct{} { return l.done }

// AfterDown has f called once, when the link goes down by the peer's doing (also
// by its death); at once, in the caller's goroutine, when that has happened
// already. f is not called once this side has closed the link. f runs on the
// link's goroutine; it may call Close of the link, and must not call Port.Close.
func (l *Link) AfterDown(f func()) {
	l.mu.Lock()
	down := false
	switch {
	case l.closed:
	case l.up.Load():
		l.hooks = append(l.hooks, f)
	default:
		down = true
	}
	l.mu.Unlock()
	if down {
		f()
	}
}

func (l *Link) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// isAlone reports whether the link is its owner's alone.
func (l *Link) isAlone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hungUp
}

// HangUp tells the peer that this side goes, and makes the link its owner's alone: the
// port's Close neither closes it nor waits for it. The peer may be in the middle of an
// access; segments and the guards in them stay mapped, and functions of AfterDown are
// called when the peer has hung up too or is dead, and so is inside no more. The owner
// then calls Close.
func (l *Link) HangUp() {
	l.mu.Lock()
	l.hungUp = true
	l.mu.Unlock()
	l.sendLeft()
	l.port.disown(l)
	l.untrack()
}

// sendLeft sends LEFT: this side ends the link.
func (l *Link) sendLeft() {
	processes.Lock()
	defer unlockProcesses()
	switch l.sentLeft = true; {
	case l.other != nil:
		l.reportLocal(msgLeft)
	case l.shared != nil:
		l.shared.send(msgLeft, l.id)
	default:
		_ = l.conn.CloseWrite() // ENOTCONN: the peer was first
	}
}

// untrack makes Port.Close not wait for the end of the link.
func (l *Link) untrack() {
	l.mu.Lock()
	awaited := l.awaited
	l.awaited = false
	l.mu.Unlock()
	if awaited {
		l.port.wg.Done()
	}
}

// Close ends the link and gives back mappings and descriptors of it. Nobody may
// use its segments or WakeFD any more. Idempotent; does not wait for a running
// AfterDown function, so may be called by one.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.hooks = nil
	l.mu.Unlock()

	kind := msgClosed
	if l.port.isClosed() {
		kind = msgGone
	}
	l.disconnect(kind)
	l.goDown(false)
	l.port.forget(l)
	return l.release()
}

// disconnect sends the peer that this side accesses its memory over the link no more, and closes the
// connection if that carries no other link.
func (l *Link) disconnect(kind linkMsgKind) {
	processes.Lock()
	defer unlockProcesses()
	l.ended = true
	l.finishDial()
	if l.other != nil {
		l.reportLocal(kind)
		return
	}
	if l.shared == nil { // in the handshake
		c := sharedConn{conn: l.conn}
		c.trySend(linkMsg{kind, l.id})
		_ = l.conn.Close()
		return
	}
	if inbound := l.shared.peer.inbound; inbound[l.id] == l {
		delete(inbound, l.id)
	}
	knows := l.endedBy == msgClosed || l.endedBy == msgGone // the peer has closed it first
	for _, c := range []*sharedConn{l.shared, l.next} {
		if c == nil {
			continue
		}
		if !knows {
			c.send(kind, l.id)
		}
		c.remove(l)
	}
}

func (l *Link) release() error {
	var errs []error
	for _, s := range l.segs {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, l.wake.close())...)
}

// start has the port wait for the end of the link, and its connection be read. welcome is what the acceptor
// tells the dialer first, or nil; if it fails the link still goes down when the dialer has gone. ErrClosed,
// and the link is down, when the port is closed.
func (l *Link) start(welcome func() error) error {
	entered := l.port.enter()
	l.mu.Lock()
	l.awaited = entered
	alone := l.hungUp
	l.mu.Unlock()
	if alone {
		l.untrack()
	} else if !entered {
		_ = l.conn.Close()
		l.goDown(false)
		return ucs.ErrClosed
	}
	l.connect(welcome)
	return nil
}

// connect makes the connection of the handshake a shared one.
func (l *Link) connect(welcome func() error) {
	processes.Lock()
	defer unlockProcesses()
	if l.ended { // the owner has closed it
		l.untrack()
		return
	}
	c := newSharedConn(l)
	switch {
	case l.sentLeft:
	case welcome != nil && welcome() != nil:
		_ = c.conn.CloseWrite() // the dialer goes, if it has not; the owner then learns that
	default:
		c.share(l)
	}
	go c.read()
}

// goDown reports once that the link is down. stays: see PeerStays.
func (l *Link) goDown(stays bool) {
	l.mu.Lock()
	if !l.up.Load() {
		l.mu.Unlock()
		return
	}
	hooks := l.hooks
	l.hooks = nil
	l.peerStays.Store(stays)
	l.up.Store(false)
	close(l.done)
	l.mu.Unlock()
	for _, f := range hooks {
		f()
	}
	l.untrack()
}
