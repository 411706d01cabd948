package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/preface"
	"github.com/gucx/gucx/ucs"
)

// An accepted connection enters the lobby. Its first bytes decide whether it is a dialer, which then
// waits in the lobby for a place, or a data connection, which waits until its transport calls Take. A data connection
// needs no place, because a dialer with a place may wait for it. All connections are accepted
// at once, so that dialers in the kernel's queue do not block data connections.

// The lobby has room for lobbyShare * MaxHandshakes connections, at least lobbyMin, and at most 1/lobbyFiles
// of the descriptors of the process. One source may use half of it.
const (
	lobbyShare = 8
	lobbyMin   = 1024
	lobbyFiles = 4
)

// lobby is the set of connections without a place.
type lobby struct {
	most  int
	in    []*Request // the oldest first
	count map[source]int
}

func newLobby(maxHandshakes int) lobby {
	most := max(lobbyShare*maxHandshakes, lobbyMin)
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		most = int(min(uint64(most), files.Cur/lobbyFiles))
	}
	return lobby{most: max(most, 2), count: map[source]int{}}
}

// enterLobby adds a connection, and may evict another one to make room; false if there is no room. The
// first bytes of the connection must arrive within HelloTimeout.
func (l *Listener) enterLobby(r *Request, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x, full := l.lobby.findVictim(r.source); full {
		if x == nil || now.Before(x.staged.Add(l.grace())) {
			return false
		}
		l.leaveLobby(x)
		l.evict(x)
	}
	r.stage, r.staged = stageFirst, now
	l.lobby.in = append(l.lobby.in, r)
	l.lobby.count[r.source]++
	_ = r.conn.SetDeadline(now.Add(l.cfg.HelloTimeout))
	return true
}

// findVictim reports whether there is no room for a connection of a source. If so, it returns the connection to evict:
// one of the same source if that has half of the lobby, otherwise one of the source with the most connections; nil if
// all of these wait for a place.
func (b *lobby) findVictim(from source) (x *Request, full bool) {
	switch {
	case b.count[from] >= (b.most+1)/2:
		return b.oldest(from), true
	case len(b.in) < b.most:
		return nil, false
	}
	most := from
	for _, r := range b.in { // in order, so that the result is deterministic
		if b.count[r.source] > b.count[most] {
			most = r.source
		}
	}
	return b.oldest(most), true
}

// oldest returns the oldest connection of a source that does not wait for a place, preferably one without its first
// bytes.
func (b *lobby) oldest(from source) (x *Request) {
	for _, r := range b.in {
		switch {
		case r.source != from || r.stage == stagePlace:
		case r.stage == stageFirst:
			return r
		case x == nil:
			x = r
		}
	}
	return x
}

// leaveLobby removes r, if it is in the lobby. l.mu is held.
func (l *Listener) leaveLobby(r *Request) {
	if i := slices.Index(l.waiting, r); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.notifyFreed()
	}
	i := slices.Index(l.lobby.in, r)
	if i < 0 {
		return
	}
	l.lobby.in = slices.Delete(l.lobby.in, i, i+1)
	if l.lobby.count[r.source]--; l.lobby.count[r.source] == 0 {
		delete(l.lobby.count, r.source)
	}
}

// readFirst reads the first bytes, and reports whether the connection may be a dialer. If it is a data connection,
// readFirst delivers it.
func (r *Request) readFirst() bool {
	stop := context.AfterFunc(r.ctx, func() { r.l.interrupt(r) })
	defer stop()
	var b [preface.Len]byte
	if err := readFull(r.plain, b[:preface.MagicLen]); err != nil {
		r.rejectInvalid(err)
		return false
	}
	if !preface.IsMagic([preface.MagicLen]byte(b[:])) {
		r.plain = &replay{r.plain, b[:preface.MagicLen]}
		r.secret = r.plain
		return true
	}
	err := readFull(r.plain, b[preface.MagicLen:])
	if err == nil {
		err = r.deliver(b)
	}
	if err != nil {
		r.rejectInvalid(err)
	}
	return false
}

// deliver delivers a data connection, and returns when the transport has called Take, or the connection was closed.
// ErrInvalidParam if no transport has the id.
func (r *Request) deliver(first [preface.Len]byte) error {
	id, err := preface.Parse(first)
	if err != nil {
		return err
	}
	r.l.mu.Lock()
	r.stage, r.staged = stageData, time.Now()
	r.l.mu.Unlock()
	if r.l.cfg.Deliver == nil || r.From.Network != "tcp" || !r.l.cfg.Deliver(id, &DataConn{r}) {
		return malformed("data connection to unknown interface %#x", id)
	}
	select {
	case <-r.taken:
	case <-r.ctx.Done():
	}
	return nil
}

// DataConn is a connection of a transport, to this or another worker. It is open until Take or Drop is called, the
// listener is closed, or the connection is evicted.
type DataConn struct{ r *Request }

// Take returns a descriptor of the socket, which the caller must close, and the address of the peer. Any goroutine may
// call it, once. Errors: ErrClosed if the connection is closed; those of the kernel.
func (c *DataConn) Take() (fd int, from netip.Addr, err error) {
	defer close(c.r.taken)
	sock, ok := c.r.conn.(syscall.Conn)
	if !ok || c.r.ctx.Err() != nil {
		return -1, from, ucs.ErrClosed
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return -1, from, err
	}
	control := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if control != nil {
		return -1, from, fmt.Errorf("%w: %w", ucs.ErrClosed, control)
	}
	return fd, c.r.From.Addr.Addr().Unmap(), err
}

// Ended reports whether Take would fail: the listener is closed, or the connection was evicted.
func (c *DataConn) Ended() bool { return c.r.ctx.Err() != nil }

// Drop closes the connection, instead of Take.
func (c *DataConn) Drop() { c.r.cancel() }

// replay is a connection whose Read first returns bytes that were read before.
type replay struct {
	net.Conn
	first []byte
}

// Read reads first, then the connection.
func (c *replay) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	c.first = c.first[n:]
	return n, nil
}
