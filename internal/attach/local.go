package attach

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// A link of two ports of one process needs no socket: the dialer calls the acceptor, and each end reports to the other one by
// a call what it would send otherwise. Both ends use one mapping of the link segment.

// localPorts has the open ports of this process with Config.Local, by the names of their sockets.
var localPorts struct {
	sync.RWMutex
	by map[string]*Port
}

// linkPools has the memory of the link segments within this process, by their length.
var linkPools struct {
	sync.Mutex
	by map[int]*memfd.Pool
}

func linkPool(size int) *memfd.Pool {
	linkPools.Lock()
	defer linkPools.Unlock()
	p := linkPools.by[size]
	if p == nil {
		p = memfd.NewPool("gucx-links", size)
		if linkPools.by == nil {
			linkPools.by = map[int]*memfd.Pool{}
		}
		linkPools.by[size] = p
	}
	return p
}

// name returns the name of the port's socket.
func (c *Config) name() string {
	return socketAddr(c.SocketDir, c.Service, c.AllowUIDs[0], c.GID).Name
}

// listLocal makes the port known to other ports of this process.
func (p *Port) listLocal() {
	if !p.cfg.Local {
		return
	}
	localPorts.Lock()
	defer localPorts.Unlock()
	if localPorts.by == nil {
		localPorts.by = map[string]*Port{}
	}
	localPorts.by[p.cfg.name()] = p
}

// unlistLocal undoes listLocal.
func (p *Port) unlistLocal() {
	localPorts.Lock()
	defer localPorts.Unlock()
	if name := p.cfg.name(); localPorts.by[name] == p {
		delete(localPorts.by, name)
	}
}

// findLocal returns the port of this process with a GID, if both ports permit links without a socket and the user of the
// other one; nil if there is none.
func (p *Port) findLocal(gid [16]byte) *Port {
	if !p.cfg.Local {
		return nil
	}
	localPorts.RLock()
	defer localPorts.RUnlock()
	for _, uid := range p.cfg.AllowUIDs {
		to := localPorts.by[socketAddr(p.cfg.SocketDir, p.cfg.Service, uid, gid).Name]
		if to != nil && p.cfg.allows(to.cfg.AllowUIDs[0]) && to.cfg.allows(p.cfg.AllowUIDs[0]) {
			return to
		}
	}
	return nil
}

// dialLocal makes a link to another port of this process, unless ctx is done.
func (p *Port) dialLocal(ctx context.Context, to *Port) (_ *Outbound, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !to.enter() {
		return nil, fmt.Errorf("%w: the port closes", ucs.ErrUnreachable)
	}
	defer to.wg.Done()
	out := &Outbound{Link: newLocalLink(p, to)}
	out.dialed = true
	in := &Inbound{Link: newLocalLink(to, p)}
	out.other, in.other = in.Link, out.Link
	defer func() {
		if err != nil {
			_ = out.Close() // if the acceptor has accepted the link, its owner closes the other end then
		}
	}()
	if err := p.mapLocal(out, to); err != nil {
		return nil, err
	}
	if err := to.acceptLocal(in, out, p); err != nil {
		to.count.refused.Add(1)
		_ = in.Close()
		return nil, err
	}
	to.count.accepted.Add(1)
	in.await()
	if err := p.adopt(out.Link); err != nil {
		return nil, err
	}
	out.await()
	return out, nil
}

// newLocalLink returns the end of a link that belongs to p. The other end belongs to port to.
func newLocalLink(p, to *Port) *Link {
	return newLink(p, nil, peer{pid: os.Getpid(), uid: to.cfg.AllowUIDs[0], own: p.cfg.AllowUIDs[0]}, to.cfg.GID)
}

// mapLocal maps the memory of the acceptor, and the link segment.
func (p *Port) mapLocal(out *Outbound, to *Port) (err error) {
	tableLen, arenaLen := len(to.cfg.Table.Bytes()), len(to.cfg.Arena.Bytes())
	if err := p.checkLengths(uint64(tableLen), uint64(arenaLen)); err != nil {
		return err
	}
	if out.Seg, err = out.own(linkPool(p.cfg.LinkLen).Create()); err != nil {
		return err
	}
	if out.Table, err = out.own(p.cfg.Mapper.AdoptOwn(to.cfg.Table, memfd.ReadOnly, tableLen)); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	dialLen := min(orDefault(p.cfg.DialLen, arenaLen), arenaLen)
	if out.Arena, err = out.own(p.cfg.Mapper.AdoptOwn(to.cfg.Arena, memfd.ReadWrite, dialLen)); err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	return out.openWake(to.cfg.WakeFD)
}

// acceptLocal runs the acceptor's part of a link that port from dials.
func (p *Port) acceptLocal(in *Inbound, out *Outbound, from *Port) (err error) {
	switch {
	case from.cfg.Layout != p.cfg.Layout || from.cfg.LinkLen != p.cfg.LinkLen:
		return &RefusedError{Reason: ReasonLayout}
	case !p.reserve(in.Link):
		return &RefusedError{Reason: ReasonLimit}
	case len(from.cfg.Arena.Bytes()) < p.cfg.ControlLen || len(from.cfg.Arena.Bytes()) > p.cfg.MaxArenaLen:
		return &RefusedError{Reason: ReasonSegments}
	}
	in.Seg, _ = in.own(out.Seg.Clone(), nil)
	in.Control, err = in.own(p.cfg.Mapper.AdoptOwn(from.cfg.Arena, memfd.ReadWrite, p.cfg.ControlLen))
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if err := in.openWake(from.cfg.WakeFD); err != nil {
		return err
	}
	if p.cfg.OnLink == nil || p.cfg.OnLink(in) != nil || p.adopt(in.Link) != nil {
		return &RefusedError{Reason: ReasonOwner}
	}
	return nil
}

// await makes the port wait for the end of the link, unless the owner has hung up or the link is down. A port that closes now
// closes the link.
func (l *Link) await() {
	entered := l.port.enter()
	l.mu.Lock()
	l.awaited = entered && !l.hungUp && l.up.Load()
	unused := entered && !l.awaited
	l.mu.Unlock()
	if unused {
		l.port.wg.Done()
	}
}

// reportLocal reports to the other end of a local link how this side ends it. The lock of processes is held.
func (l *Link) reportLocal(kind linkMsgKind) {
	if !l.other.ended {
		l.other.endByPeer(kind)
	}
}
