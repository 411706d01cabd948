package attach

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// Link is what both ends of a link have. It is up until the peer dies or closes,
// or this side closes; the kernel's word for that is the hang-up of the socket.
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

	port *Port
	conn *net.UnixConn
	wake *sharedPipe // WakeFD; nil before the handshake
	segs []*memfd.Segment
	up   atomic.Bool
	done chan struct{}
	// peerStays: see PeerStays; stored before up becomes false.
	peerStays atomic.Bool

	counted bool // against MaxLinks; under port.mu

	mu      sync.Mutex
	closed  bool
	hungUp  bool
	awaited bool // Port.Close waits for watch
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

// takeWake opens the peer's pipe, for Close to close.
func (l *Link) takeWake(fds rights, i int) (err error) {
	if l.wake, err = sharePipe(fds[i]); err == nil {
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
	l := &Link{PeerGID: gid, PeerPID: who.pid, PeerUID: who.uid, WakeFD: -1,
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
	_ = l.conn.CloseWrite() // ENOTCONN: the peer was first
	l.port.disown(l)
	l.leave()
}

// leave has Port.Close not wait for watch any more.
func (l *Link) leave() {
	l.mu.Lock()
	awaited := l.awaited
	l.awaited = false
	l.mu.Unlock()
	if awaited {
		l.port.wg.Done()
	}
}

// Close hangs up and gives back mappings and descriptors of the link. Nobody may
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

	if !l.port.isClosed() {
		l.sayStays()
	}
	_ = l.conn.Close() // the only error is that watch, seeing the hang-up, was first
	l.port.forget(l)
	return l.release()
}

// stays is the message of a side that ends a link and not its port.
const stays = 's'

// sayStays sends it, unless the peer was first. It is the only message after the handshake, so
// that there is room for it.
func (l *Link) sayStays() {
	raw, _ := l.conn.SyscallConn() // fails only for a nil connection
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Send(int(fd), []byte{stays}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
}

func (l *Link) release() error {
	var errs []error
	for _, s := range l.segs {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, l.wake.close())...)
}

// watch has a goroutine wait until the link is down. Nothing is sent after the handshake
// but the last word of who ends the link, so whatever a read returns ends it; descriptors that would come with
// data are dropped by the kernel, as read has no place for them. The socket stays open
// until Close: a hang-up tells the peer that this side is inside its memory no more.
// ErrClosed, and the link is down, when the port is closed.
func (l *Link) watch() error {
	entered := l.port.enter()
	l.mu.Lock()
	l.awaited = entered
	alone := l.hungUp
	l.mu.Unlock()
	if alone {
		l.leave()
	} else if !entered {
		_ = l.conn.Close()
		l.goDown()
		return ucs.ErrClosed
	}
	go func() {
		defer l.leave()
		l.awaitHangUp()
		l.goDown()
	}()
	return nil
}

// awaitHangUp reads the peer's last word. A deadline is what is left of the handshake. A
// reset says that the peer has not read our welcome, and comes before what it had sent.
func (l *Link) awaitHangUp() {
	var b [1]byte
	for {
		_ = l.conn.SetDeadline(time.Time{})
		n, err := l.conn.Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ECONNRESET) {
			continue
		}
		l.peerStays.Store(n == 1 && b[0] == stays)
		return
	}
}

// goDown tells everybody that the link is down, once.
func (l *Link) goDown() {
	l.mu.Lock()
	hooks := l.hooks
	l.hooks = nil
	l.up.Store(false)
	close(l.done)
	l.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}
