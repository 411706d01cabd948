package attach

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/timelimit"
)

// acceptPause is the pause of the accept loop when the process has no free descriptor.
const acceptPause = 100 * time.Millisecond

// acceptLoop accepts connections until the port is closed.
func (p *Port) acceptLoop() {
	for {
		conn, err := p.listener.AcceptUnix()
		if err != nil {
			if !p.sleep(acceptPause) {
				return
			}
			continue
		}
		if !p.dispatch(conn) {
			_ = conn.Close()
			return
		}
	}
}

// sleep waits for d; false if the port was closed in the meantime.
func (p *Port) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// dispatch rejects connections of other users, which therefore never occupy a slot. For the others it starts the
// handshake as soon as there is a slot. It returns false if the port is closed.
func (p *Port) dispatch(conn *net.UnixConn) bool {
	who, err := peerOf(conn)
	who.own = p.cfg.AllowUIDs[0]
	if err != nil || !p.cfg.allows(who.uid) {
		p.count.foreign.Add(1)
		_ = conn.Close()
		return true
	}
	select {
	case p.slots <- struct{}{}:
	case <-p.ctx.Done():
		return false
	}
	return p.spawn(func() { p.serve(conn, who) })
}

// serve runs the handshake of a connection and then frees the slot.
func (p *Port) serve(conn *net.UnixConn, who peer) {
	p.accept(conn, who)
	<-p.slots
}

// accept runs the acceptor's side of the handshake. If the handshake yields no link, it closes the
// connection.
func (p *Port) accept(conn *net.UnixConn, who peer) {
	bound, cancel := timelimit.WithTimeout(p.ctx, p.cfg.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(bound, func() { expire(conn) })
	defer stop()

	hello, fds, err := receive(conn)
	defer fds.close()
	if err == nil && hello.kind != kindHello {
		err = errMalformed
	}
	if err != nil {
		p.reject(conn, err)
		return
	}
	l := newLink(p, conn, who, hello.from)
	l.id = hello.link
	reason := p.admit(l, &hello, fds)
	if reason != 0 {
		p.count.refused.Add(1)
		_ = send(conn, p.refusal(reason))
		_ = conn.Close() // nothing follows the refusal
		_ = l.Close()
		return
	}
	p.count.accepted.Add(1)
	_ = l.start(func() error { return p.welcome(l) })
}

// expire makes the handshake stop waiting for the peer's message. Sending does not block: the message of this side is
// the first one on the connection, so there is room for it.
func expire(conn *net.UnixConn) { _ = conn.SetReadDeadline(time.Now()) }

// reject closes a connection without a valid hello. err is the reason.
func (p *Port) reject(conn *net.UnixConn, err error) {
	switch {
	case errors.Is(err, errVersion):
		p.count.refused.Add(1)
		_ = send(conn, p.refusal(ReasonVersion))
	case errors.Is(err, errDescriptors):
		p.count.refused.Add(1)
		_ = send(conn, p.refusal(ReasonLimit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.count.timeout.Add(1)
	default:
		p.count.garbage.Add(1)
	}
	_ = conn.Close()
}

func (p *Port) refusal(r Reason) *frame {
	return &frame{kind: kindRefuse, reason: r, from: p.cfg.GID}
}

// admit makes an inbound link of a hello, and calls OnLink. If it returns a reason for a refusal, the caller must close
// the link.
func (p *Port) admit(l *Link, hello *frame, fds rights) Reason {
	switch {
	case hello.to != p.cfg.GID:
		return ReasonAddress
	case hello.layout != p.cfg.Layout || hello.len0 != uint64(p.cfg.LinkLen):
		return ReasonLayout
	case !p.reserve(l):
		return ReasonLimit
	}
	in := &Inbound{Link: l}
	var err error
	if in.Seg, err = l.own(memfd.Adopt(fds.remove(0), memfd.ReadWrite, p.cfg.LinkLen, p.cfg.LinkLen)); err != nil {
		return reasonOf(err)
	}
	in.Control, err = l.own(p.cfg.Mapper.Adopt(fds.remove(1), l.arenaAccess(), p.cfg.ControlLen, p.cfg.MaxArenaLen, p.cfg.ControlLen))
	if err != nil {
		return reasonOf(err)
	}
	if err := l.openWake(fds[2]); err != nil {
		return reasonOf(err)
	}
	if p.cfg.OnLink == nil || p.cfg.OnLink(in) != nil || p.adopt(l) != nil {
		return ReasonOwner
	}
	return 0
}

// reasonOf returns the reason why a segment was not mapped: ReasonLimit if this process lacks resources, which may be
// temporary, ReasonSegments if the segment is not valid.
func reasonOf(err error) Reason {
	if outOfRoom(err) {
		return ReasonLimit
	}
	return ReasonSegments
}

// welcome sends the port's segments to the dialer.
func (p *Port) welcome(l *Link) error {
	return send(l.conn, &frame{
		kind:     kindWelcome,
		layout:   p.cfg.Layout,
		shares:   l.PeerPID != 0,
		from:     p.cfg.GID,
		to:       l.PeerGID,
		len0:     uint64(len(p.cfg.Table.Bytes())),
		arenaLen: uint64(len(p.cfg.Arena.Bytes())),
	}, p.cfg.Table.FD(), p.cfg.Arena.FD(), p.cfg.WakeFD)
}
