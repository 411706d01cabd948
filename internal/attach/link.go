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

// Link is one end of a link. It is up until the peer dies or closes,
// or this side closes.
type Link struct {
	// PeerGID is the GID that the peer has sent; an acceptor cannot verify it.
	PeerGID [16]byte
	// PeerPID is the process of the peer, as the kernel reports it in the PID
	// namespace of this process; 0 if it is not visible there.
	PeerPID int
	// PeerUID is the peer's effective user.
	PeerUID uint32
	// WakeFD is the write end of the peer's pipe, for Wake; valid until Close. The links of this
	// process to that peer share it.
	WakeFD int

	port   *Port
	conn   *net.UnixConn // connection of the handshake
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

	// peerShares of a dialer: the PID of this process is visible to the acceptor, so that the acceptor finds the link
	// after MOVE. A PID may be visible to one side only.
	peerShares bool

	// Under processes.Mutex:
	shared      *sharedConn // connection that carries the link; nil during the handshake
	next        *sharedConn // of a dialer: connection to which the link moves
	dialing     *dialSlot   // of a dialer, as long as the link may move
	hasMoved    bool        // of an acceptor
	endedOnNext linkMsgKind // message on next by which the peer has ended the link
	endedBy     linkMsgKind // message by which the peer has ended the link; 0 if there was none
	sentLeft    bool        // this side has sent LEFT
	ended       bool        // this side has closed the link, or the peer has ended it

	mu      sync.Mutex
	closed  bool
	hungUp  bool
	awaited bool // Port.Close waits for goDown
	hooks   []func()
}

// own makes Close close the segment s, and returns s.
func (l *Link) own(s *memfd.Segment, err error) (*memfd.Segment, error) {
	if err == nil {
		l.segs = append(l.segs, s)
	}
	return s, err
}

// arenaAccess returns the access with which a peer's arena is mapped. Huge pages are accepted only from
// processes of this user: see memfd.HugePages.
func (l *Link) arenaAccess() memfd.Access {
	if l.PeerUID == uint32(os.Geteuid()) {
		return memfd.ReadWrite | memfd.HugePages
	}
	return memfd.ReadWrite
}

// openWake opens the peer's pipe. Close closes it.
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

// Up reports whether the link is up, as far as is known. It costs one atomic load.
func (l *Link) Up() bool { return l.up.Load() }

// PeerStays reports, for a link that is down, whether the peer has closed only this link and its port is
// still open: a dial has exceeded its time limit, or the peer no longer needs the link. It returns false if the port of
// the peer is closed, its process is dead, or this side has closed first.
func (l *Link) PeerStays() bool { return l.peerStays.Load() }

// Done is closed when the link goes down, for any reason.
func (l *Link) Done() <-chan struct{} { return l.done }

// AfterDown makes the link call f once when the peer brings it down, also by its
// death. If that has happened already, AfterDown calls f itself. After this side has closed the link,
// f is not called. Otherwise f runs on a goroutine of the link. It may call Close of the link, and must not call Port.Close.
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

// isAlone reports whether HangUp was called: the owner and not the port closes the link.
func (l *Link) isAlone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hungUp
}

// HangUp sends LEFT to the peer. From then on the port's Close neither closes the link nor waits for it. The peer
// may have an access in progress, so the segments with their guards remain mapped. Functions of AfterDown are
// called when the peer has closed the link too or is dead, and has no access in progress. Then the owner must
// call Close.
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

// Close closes the link, its mappings and its descriptors. The caller must not use its segments or
// WakeFD afterwards. Idempotent. Close does not wait for a running function of AfterDown, which may
// therefore call it.
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

// disconnect sends kind, which means that this side no longer accesses memory of the peer over the link. It closes the
// connection if the connection carries no other link.
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
	closedByPeer := l.endedBy == msgClosed || l.endedBy == msgGone
	for _, c := range []*sharedConn{l.shared, l.next} {
		if c == nil {
			continue
		}
		if !closedByPeer {
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

// start makes Port.Close wait until the link is down, and starts to read its connection. welcome sends the first message
// of the acceptor; it is nil at the dialer. If welcome fails, the link goes down when the dialer has closed. If the port
// is closed, start returns ErrClosed and the link is down.
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
		_ = c.conn.CloseWrite() // then the dialer closes, unless it has closed already, and the link goes down
	default:
		c.share(l)
	}
	go c.read()
}

// goDown marks the link as down and calls the functions of AfterDown, once. stays: see PeerStays.
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
