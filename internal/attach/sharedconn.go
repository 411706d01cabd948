package attach

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// process is what this process knows about a process that it has connections to, which may be itself. The
// kernel identifies it, by SO_PEERCRED: no peer can claim to be another process.
type process struct {
	who     peer
	conns   []*sharedConn    // that links can move to, oldest first
	inbound map[linkID]*Link // that the process dialed, and that this side has not closed
	links   int              // made since there is a connection
	users   int              // connections that are not closed
}

// processes are those that this process has connections to. Its lock is also that of all fields of process
// and sharedConn, and of fields of Link: nothing waits while it is held, and the only
// other locks that are taken are Link.mu and that of lateDials.
var processes struct {
	sync.Mutex
	by    map[peer]*process
	close []*net.UnixConn // by who unlocks
}

// unlockProcesses ends what began with processes.Lock. It closes the connections that are not used any more: that
// waits for their readers.
func unlockProcesses() {
	unused := processes.close
	processes.close = nil
	processes.Unlock()
	for _, conn := range unused {
		_ = conn.Close() // no error matters: nothing is sent any more
	}
}

// sharedConn is a connection after the handshake. It carries the link that it was made for, and links of
// the same two processes, whichever of them has dialed, that have moved to it.
type sharedConn struct {
	conn   *net.UnixConn
	peer   *process
	links  map[linkID]*Link // carried, and those that are about to move here
	queue  []linkMsg        // that the peer has no room for; a goroutine sends the first one
	down   bool             // the peer is dead, has hung up, or has sent what is malformed
	closed bool             // by this side
	stray  int              // messages about links that are not here
}

// strayLimit is how many messages about links that are not here a connection may get for each link of the
// two processes, and strayBase how many more. An honest peer sends such a message when both sides close a
// link at the same time: a move and a close at most.
const (
	strayLimit = 4
	strayBase  = 64
)

// maxQueue is how many messages wait until the peer has room. An honest peer that is stopped needs as many as there are
// links, or twice as many.
const maxQueue = 1 << 16

// flushPause is how long flush pauses when the kernel has no memory for a message.
const flushPause = 10 * time.Millisecond

// newSharedConn returns the connection that carries l alone. The lock is held.
func newSharedConn(l *Link) *sharedConn {
	who := peer{pid: l.PeerPID, uid: l.PeerUID, own: l.ownUID}
	p := processes.by[who]
	if p == nil {
		p = &process{who: who, inbound: map[linkID]*Link{}}
		p.register()
	}
	p.users++
	p.links++
	c := &sharedConn{conn: l.conn, peer: p, links: map[linkID]*Link{l.id: l}}
	l.shared = c
	if !l.dialed && p.inbound[l.id] == nil { // a name that is taken is a peer's doing, and leads to its other link
		p.inbound[l.id] = l
	}
	return c
}

// register makes later connections to the process find it, unless the kernel does not name the process.
func (p *process) register() {
	if p.who.pid == 0 {
		return
	}
	if processes.by == nil {
		processes.by = map[peer]*process{}
	}
	processes.by[p.who] = p
}

// share makes c, which carries l alone, one that other links can move to. The lock is held.
func (c *sharedConn) share(l *Link) {
	if c.peer.who.pid != 0 {
		c.peer.conns = append(c.peer.conns, c)
	}
	l.move()
}

// move asks the peer to move a link that this side has dialed to the oldest connection, unless that carries it or the
// peer shares none. The lock is held.
func (l *Link) move() {
	conns := l.shared.peer.conns
	if !l.dialed || !l.peerShares || len(conns) == 0 || conns[0] == l.shared || conns[0].links[l.id] != nil {
		l.finishDial()
		return
	}
	l.next = conns[0]
	l.next.links[l.id] = l
	l.next.send(msgMove, l.id)
}

// finishDial ends the dial of a link that has moved. The lock is held.
func (l *Link) finishDial() {
	if l.dialing != nil {
		l.dialing.finish()
		l.dialing = nil
	}
}

// send queues a message, unless the connection is down. It does not wait. A connection whose queue is full goes down.
// The lock is held, and unlockProcesses ends that.
func (c *sharedConn) send(kind linkMsgKind, id linkID) {
	m := linkMsg{kind, id}
	if c.down || len(c.queue) == 0 && c.trySend(m) {
		return
	}
	if len(c.queue) >= maxQueue {
		c.goDown()
		return
	}
	c.queue = append(c.queue, m)
	if len(c.queue) == 1 {
		go c.flush()
	}
}

// trySend sends a message; false if the peer has no room for it. A peer that is gone needs none.
func (c *sharedConn) trySend(m linkMsg) bool {
	var err error
	raw, _ := c.conn.SyscallConn() // fails only for a nil connection
	closed := raw.Control(func(fd uintptr) {
		err = unix.Send(int(fd), m.encode(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return closed != nil || err == nil || isHangUp(err)
}

// isHangUp reports whether err, of a write, says that the connection has ended. After another error, as of a kernel
// without memory, there may be room later.
func isHangUp(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// flush sends what is queued, and closes the connection if that was all that it was needed for.
func (c *sharedConn) flush() {
	processes.Lock()
	defer unlockProcesses()
	for len(c.queue) > 0 {
		m := c.queue[0]
		unlockProcesses()
		_, err := c.conn.Write(m.encode())
		if err != nil && !isHangUp(err) {
			time.Sleep(flushPause)
		}
		processes.Lock()
		switch {
		case len(c.queue) == 0: // the connection went down
		case err == nil:
			c.queue = c.queue[1:]
		case isHangUp(err):
			c.queue = nil
		}
	}
	c.closeIfUnused()
}

// read handles what the peer sends until it hangs up. Descriptors that come with a message are dropped by the kernel,
// as read has no place for them.
func (c *sharedConn) read() {
	for {
		m, err := c.receive()
		processes.Lock()
		if err == nil && !c.closed && !c.down {
			err = c.handle(m)
		}
		if err != nil {
			c.goDown()
		}
		ends := c.down
		unlockProcesses()
		if ends {
			return
		}
	}
}

// receive reads a message. A deadline is what is left of the handshake. A reset says that the peer had not
// read all messages, and comes before what it had sent.
func (c *sharedConn) receive() (linkMsg, error) {
	var b [linkMsgLen + 1]byte
	for {
		_ = c.conn.SetReadDeadline(time.Time{})
		n, err := c.conn.Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ECONNRESET) {
			continue
		}
		if err != nil {
			return linkMsg{}, err
		}
		return decodeLinkMsg(b[:n])
	}
}

// handle does what a message says. Error: errMalformed. The lock is held.
func (c *sharedConn) handle(m linkMsg) error {
	if m.kind == msgMove {
		return c.moveHere(c.peer.inbound[m.id])
	}
	l := c.links[m.id]
	switch {
	case l == nil || l.ended:
		return c.noteStray()
	case m.kind == msgMoved && (l.shared != c || l.next == nil), m.kind == msgLeft && !l.dialed:
		return errMalformed
	case m.kind == msgMoved:
		l.finishMove()
	case l.shared != c && l.endedOnNext != 0:
		return c.noteStray()
	case l.shared != c: // the move is not confirmed yet
		l.endedOnNext = m.kind
	default:
		l.endByPeer(m.kind)
	}
	return nil
}

// noteStray counts a message about a link that is not here.
func (c *sharedConn) noteStray() error {
	if c.stray++; c.stray > strayBase+strayLimit*c.peer.links {
		return errMalformed
	}
	return nil
}

// moveHere moves a link that the peer has dialed to this connection; nil means a link that does not
// exist.
func (c *sharedConn) moveHere(l *Link) error {
	if l == nil || l.ended {
		return c.noteStray()
	}
	old := l.shared
	if old == c || l.hasMoved || c.links[l.id] != nil {
		return errMalformed
	}
	if len(old.queue) > 0 || !old.trySend(linkMsg{msgMoved, l.id}) {
		return c.noteStray() // the peer does not read: the link stays where it is, as MOVED cannot be sent
	}
	l.shared, l.hasMoved = c, true
	c.links[l.id] = l
	old.remove(l)
	return nil
}

// finishMove makes the connection that l moves to the one that carries it.
func (l *Link) finishMove() {
	old := l.shared
	l.shared, l.next = l.next, nil
	old.remove(l)
	l.finishDial()
	if l.endedOnNext != 0 {
		l.endByPeer(l.endedOnNext)
	}
}

// endByPeer brings the link down after a message of the peer; kind 0: there was no message, and the
// connection has failed.
func (l *Link) endByPeer(kind linkMsgKind) {
	l.ended, l.endedBy = true, kind
	l.finishDial()
	go l.goDown(kind == msgClosed)
}

// goDown ends all links of c, and drops what is queued. The socket stays open until this side has closed them: its
// hang-up says that this side accesses the peer's memory no more.
func (c *sharedConn) goDown() {
	c.down, c.queue = true, nil
	c.unlist()
	for id, l := range c.links {
		switch {
		case l.shared == c && !l.ended:
			l.endByPeer(0)
		case l.shared != c && l.endedOnNext == 0 && !l.ended: // the peer has closed c before it was asked to move the link here, or is dead
			delete(c.links, id)
			l.next = nil
			l.move()
		}
	}
	c.closeIfUnused()
}

// unlist has no more links move here.
func (c *sharedConn) unlist() {
	c.peer.conns = slices.DeleteFunc(c.peer.conns, func(x *sharedConn) bool { return x == c })
}

// remove makes c not carry l any more.
func (c *sharedConn) remove(l *Link) {
	if c.links[l.id] == l {
		delete(c.links, l.id)
	}
	c.closeIfUnused()
}

// closeIfUnused closes a connection that carries no link, and that has sent everything: the hang-up alone does not say
// that this side keeps its port.
func (c *sharedConn) closeIfUnused() {
	if len(c.links) > 0 || len(c.queue) > 0 || c.closed {
		return
	}
	c.closed = true
	c.unlist()
	processes.close = append(processes.close, c.conn)
	if c.peer.users--; c.peer.users == 0 && processes.by[c.peer.who] == c.peer {
		delete(processes.by, c.peer.who)
	}
}
