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

// process is the state of this process for one peer process, which may be itself. The
// kernel identifies the peer process, by SO_PEERCRED: no peer can claim to be another process.
type process struct {
	who     peer
	conns   []*sharedConn    // connections to which links can move, oldest first
	inbound map[linkID]*Link // links that the process has dialed and this side has not closed
	links   int              // number of links made since the first connection
	users   int              // number of connections that are not closed
}

// processes contains the processes to which this process has connections. Its lock also protects all fields of process
// and sharedConn, and some fields of Link. No code waits while it has the lock. Link.mu and the lock of lateDials
// are locked after it, and no other lock.
var processes struct {
	sync.Mutex
	by    map[peer]*process
	close []*net.UnixConn // connections that unlockProcesses closes
}

// unlockProcesses unlocks processes. Then it closes the connections that are no longer used, which
// waits for their readers.
func unlockProcesses() {
	unused := processes.close
	processes.close = nil
	processes.Unlock()
	for _, conn := range unused {
		_ = conn.Close() // no error matters: nothing is sent any more
	}
}

// sharedConn is a connection after the handshake. It carries the link of its handshake, and other links between
// the same two processes that have moved to it, whichever process has dialed them.
type sharedConn struct {
	conn   *net.UnixConn
	peer   *process
	links  map[linkID]*Link // links that it carries, and those that are about to move to it
	queue  []linkMsg        // messages for which the socket had no room; a goroutine sends the first one
	down   bool             // the peer is dead, has closed the connection, or has sent a malformed message
	closed bool             // closed by this side
	stray  int              // number of messages about links that the connection does not carry
}

// strayLimit limits the messages about links that the connection does not carry: strayLimit for each link between the
// two processes, and strayBase in addition. An honest peer sends such messages if both sides close a
// link at the same time: at most a move and a close.
const (
	strayLimit = 4
	strayBase  = 64
)

// maxQueue is the maximum number of messages in the queue. For an honest peer that is stopped, there are at most two
// messages for each link.
const maxQueue = 1 << 16

// flushPause is the pause of flush when the kernel has no memory for a message.
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
	if !l.dialed && p.inbound[l.id] == nil { // if the peer uses an id twice, its messages apply to the first link
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

// share permits other links to move to c, which carries only l. The lock is held.
func (c *sharedConn) share(l *Link) {
	if c.peer.who.pid != 0 {
		c.peer.conns = append(c.peer.conns, c)
	}
	l.move()
}

// move sends MOVE for a link that this side has dialed, so that the oldest connection carries it. It does nothing if
// that connection carries the link already, or if the peer shares no connections. The lock is held.
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

// send sends or queues a message, unless the connection is down. It does not wait. If the queue is full, the connection
// goes down. The lock is held; the caller must unlock it by unlockProcesses.
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

// trySend sends a message; false if there is no room for it. If the peer is gone, it drops the message and returns true.
func (c *sharedConn) trySend(m linkMsg) bool {
	var err error
	raw, _ := c.conn.SyscallConn() // fails only for a nil connection
	closed := raw.Control(func(fd uintptr) {
		err = unix.Send(int(fd), m.encode(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return closed != nil || err == nil || isHangUp(err)
}

// isHangUp reports whether err, of a write, means that the connection is closed. After another error, such as a lack of
// memory in the kernel, a later write may succeed.
func isHangUp(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// flush sends the queued messages, and then closes the connection if it carries no link.
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

// read handles the messages of the peer until the connection goes down. The kernel drops descriptors that the peer
// sends with a message, because read has no buffer for them.
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

// receive reads a message. It clears the deadline, which the handshake may have set. ECONNRESET means that the peer has
// closed without having read all messages; the messages of the peer can still be read after it.
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

// handle handles a message. Error: errMalformed. The lock is held.
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

// noteStray counts a message about a link that the connection does not carry. Beyond the limit it returns errMalformed.
func (c *sharedConn) noteStray() error {
	if c.stray++; c.stray > strayBase+strayLimit*c.peer.links {
		return errMalformed
	}
	return nil
}

// moveHere moves a link that the peer has dialed to this connection. l is nil if there is no link with the id of the
// message.
func (c *sharedConn) moveHere(l *Link) error {
	if l == nil || l.ended {
		return c.noteStray()
	}
	old := l.shared
	if old == c || l.hasMoved || c.links[l.id] != nil {
		return errMalformed
	}
	if len(old.queue) > 0 || !old.trySend(linkMsg{msgMoved, l.id}) {
		return c.noteStray() // the peer does not read, so that MOVED cannot be sent: the link does not move
	}
	l.shared, l.hasMoved = c, true
	c.links[l.id] = l
	old.remove(l)
	return nil
}

// finishMove completes the move of l: next carries it now.
func (l *Link) finishMove() {
	old := l.shared
	l.shared, l.next = l.next, nil
	old.remove(l)
	l.finishDial()
	if l.endedOnNext != 0 {
		l.endByPeer(l.endedOnNext)
	}
}

// endByPeer brings the link down after a message of the peer. kind is 0 if there was no message but the
// connection has failed.
func (l *Link) endByPeer(kind linkMsgKind) {
	l.ended, l.endedBy = true, kind
	l.finishDial()
	go l.goDown(kind == msgClosed)
}

// goDown brings all links of c down, and drops the queue. The socket remains open until this side has closed the links,
// because its closing means that this side no longer accesses memory of the peer.
func (c *sharedConn) goDown() {
	c.down, c.queue = true, nil
	c.unlist()
	for id, l := range c.links {
		switch {
		case l.shared == c && !l.ended:
			l.endByPeer(0)
		case l.shared != c && l.endedOnNext == 0 && !l.ended: // the peer has closed c before it received MOVE, or is dead
			delete(c.links, id)
			l.next = nil
			l.move()
		}
	}
	c.closeIfUnused()
}

// unlist prevents further links from moving to c.
func (c *sharedConn) unlist() {
	c.peer.conns = slices.DeleteFunc(c.peer.conns, func(x *sharedConn) bool { return x == c })
}

// remove removes l from c, which is closed if it carries no other link.
func (c *sharedConn) remove(l *Link) {
	if c.links[l.id] == l {
		delete(c.links, l.id)
	}
	c.closeIfUnused()
}

// closeIfUnused closes c if it carries no link and its queue is empty. The queue must be sent first, because it may
// contain CLOSED, which means that the port of this side is still open.
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
