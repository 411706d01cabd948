package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"golang.org/x/sys/unix"
)

// dialPause is the pause of a dialer while the acceptor's backlog is full; the
// kernel has no event for that.
const dialPause = 5 * time.Millisecond

// Dial connects to the port with the given GID, which may be the GID of p itself. It blocks until the acceptor has replied,
// but at most for HandshakeTimeout or until ctx is done. If 64 other dials of the process are in progress, it first waits
// for one of them, or until ctx is done.
//
// Errors, all within a *ucs.OpError: ucs.ErrUnreachable (no process listens on gid),
// ucs.ErrTimedOut (acceptor stopped or too busy), ErrForeignUser, ErrProtocol,
// *RefusedError, ucs.ErrConnReset (hung up during the handshake), ucs.ErrClosed
// (the port is closed), the error of ctx, ucs.ErrNoMemory (no room in the address space,
// no descriptors), other errors of memfd.
func (p *Port) Dial(ctx context.Context, gid [16]byte) (*Outbound, error) {
	out, err := p.dial(ctx, gid)
	if err != nil {
		return nil, &ucs.OpError{TL: p.cfg.Service, Op: fmt.Sprintf("attach to %x", gid), Err: err}
	}
	return out, nil
}

func (p *Port) dial(ctx context.Context, gid [16]byte) (_ *Outbound, err error) {
	if !p.enter() {
		return nil, ucs.ErrClosed
	}
	defer p.wg.Done()
	if to := p.findLocal(gid); to != nil {
		out, err := p.dialLocal(ctx, to)
		return out, p.dialError(ctx, err)
	}
	slot, err := p.acquireDialSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			slot.finish()
		}
	}()
	bound, cancel := timelimit.WithTimeout(ctx, p.cfg.HandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()

	conn, who, err := p.connect(bound, gid, slot)
	if err != nil {
		return nil, p.dialError(ctx, err)
	}
	slot.reached(who)
	out := p.newOutbound(conn, who, gid)
	defer func() {
		if err != nil {
			_ = out.Close()
		}
	}()
	if err = p.introduceIn(ctx, bound, out); err != nil {
		return nil, p.dialError(ctx, err)
	}
	out.dialing = slot
	return out, p.establish(out.Link)
}

func (p *Port) newOutbound(conn *net.UnixConn, who peer, gid [16]byte) *Outbound {
	l := newLink(p, conn, who, gid)
	l.id, l.dialed = newLinkID(), true
	return &Outbound{Link: l}
}

// introduceIn runs the dialer's side of the handshake, at most until bound is done. A reply that has
// arrived by then is valid, unless ctx is done too or the port is closed.
func (p *Port) introduceIn(ctx, bound context.Context, out *Outbound) error {
	stop := context.AfterFunc(bound, func() { expire(out.conn) })
	err := p.introduce(out)
	if !stop() && err == nil {
		err = cmp.Or(ctx.Err(), p.ctx.Err())
	}
	return err
}

// establish adds the link to the port and starts it.
func (p *Port) establish(l *Link) error {
	if err := p.adopt(l); err != nil {
		return err
	}
	return l.start(nil)
}

// connect connects to a listener, and checks that its process belongs to an allowed user.
func (p *Port) connect(ctx context.Context, gid [16]byte, slot *dialSlot) (*net.UnixConn, peer, error) {
	conn, err := p.connectAny(ctx, gid, slot)
	if err != nil {
		return nil, peer{}, err
	}
	who, err := peerOf(conn)
	who.own = uint32(os.Geteuid())
	if err == nil && !p.cfg.allows(who.uid) {
		err = fmt.Errorf("%w: uid %d", ErrForeignUser, who.uid)
	}
	if err != nil {
		_ = conn.Close()
		return nil, peer{}, err
	}
	return conn, who, nil
}

// connectOne waits for room in the listener's backlog, as a blocking connect does. Meanwhile the dial does not count: a
// listener that accepts nothing delays no dials to others.
func connectOne(ctx context.Context, addr *net.UnixAddr, slot *dialSlot) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, addr.Net, addr.Name)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		slot.release()
		t := time.NewTimer(dialPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		if err := slot.acquire(ctx); err != nil {
			return nil, err
		}
	}
}

// introduce runs the dialer's side of the handshake.
func (p *Port) introduce(out *Outbound) error {
	var err error
	if out.Seg, err = out.own(memfd.Create("gucx-link", p.cfg.LinkLen, memfd.PeersWrite)); err != nil {
		return err
	}
	hello := &frame{
		kind: kindHello, layout: p.cfg.Layout, from: p.cfg.GID, to: out.PeerGID,
		len0: uint64(p.cfg.LinkLen), link: out.id,
	}
	if err := send(out.conn, hello, out.Seg.FD(), p.cfg.Arena.FD(), p.cfg.WakeFD); err != nil {
		return err
	}
	if err := out.Seg.DropFD(); err != nil {
		return err
	}
	reply, fds, err := receive(out.conn)
	if err != nil {
		return err
	}
	defer fds.close()
	return p.acceptReply(out, &reply, fds)
}

// acceptReply checks the acceptor's reply and maps its segments.
func (p *Port) acceptReply(out *Outbound, reply *frame, fds rights) (err error) {
	switch {
	case reply.kind == kindRefuse:
		return &RefusedError{Reason: reply.reason}
	case reply.kind != kindWelcome:
		return errMalformed
	case reply.from != out.PeerGID || reply.to != p.cfg.GID || reply.layout != p.cfg.Layout:
		return fmt.Errorf("%w: welcome from %x to %x, layout %d", ErrProtocol, reply.from, reply.to, reply.layout)
	}
	if err := p.checkLengths(reply.len0, reply.arenaLen); err != nil {
		return err
	}
	out.peerShares = reply.shares
	tableLen, arenaLen := int(reply.len0), int(reply.arenaLen)
	dialLen := min(orDefault(p.cfg.DialLen, arenaLen), arenaLen)
	if out.Table, err = out.own(p.cfg.Mapper.Adopt(fds.remove(0), memfd.ReadOnly, tableLen, tableLen, tableLen)); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	if out.Arena, err = out.own(p.cfg.Mapper.Adopt(fds.remove(1), out.arenaAccess(), arenaLen, arenaLen, dialLen)); err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	switch err := out.openWake(fds[2]); {
	case err == nil || outOfRoom(err):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
}

// checkLengths checks the lengths of a peer's table and arena.
func (p *Port) checkLengths(table, arena uint64) error {
	if table > uint64(p.cfg.MaxTableLen) || arena > uint64(p.cfg.MaxArenaLen) {
		return fmt.Errorf("%w: table of %d bytes, arena of %d", memfd.ErrSize, table, arena)
	}
	return nil
}

// dialError returns the error of a dial, which matches an error of package ucs. ctx is the caller's.
func (p *Port) dialError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case p.ctx.Err() != nil:
		return ucs.ErrClosed
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ucs.ErrTimedOut, ctx.Err())
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded): // of a read, of connect
		return fmt.Errorf("%w: no answer from the peer: %w", ucs.ErrTimedOut, err)
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE):
		return fmt.Errorf("%w: during the handshake", ucs.ErrConnReset)
	case outOfRoom(err):
		return fmt.Errorf("%w: %w", ucs.ErrNoMemory, err)
	case errors.Is(err, errMalformed) || errors.Is(err, errVersion):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

// listenError returns the error of a port that cannot be opened.
func listenError(service string, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		err = fmt.Errorf("%w: address in use by another process", ucs.ErrBusy)
	}
	return &ucs.OpError{TL: service, Op: "listen", Err: err}
}
