package ucxpeer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// path is an interface of a peer to which an EP can connect.
type path struct {
	params   uct.EPParams
	at       netip.AddrPort // the address at which the interface listens
	distance int
}

// paths returns the reachable tcp interfaces of an address, the one with the shortest distance first. Addresses that a peer on
// another host shares with this host, for example private ones, are omitted, because a process of this host could use them.
func (w *Worker) paths(a *ucxwire.Address) (all []path, err error) {
	why := "the address has no tcp interface"
	for _, d := range a.Devices {
		for _, i := range d.Ifaces {
			if i.Transport != tcpSum {
				continue
			}
			at, err := ucxtcp.ParseAddr(d.Addr, i.Addr)
			if err != nil {
				why = err.Error()
				continue
			}
			ok, reason := w.tcp.Reachable(d.Addr, i.Addr)
			if !ok {
				why = reason
				continue
			}
			all = append(all, path{uct.EPParams{DeviceAddr: d.Addr, IfaceAddr: i.Addr}, at, w.tcp.Distance(d.Addr)})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s", ucs.ErrUnreachable, why)
	}
	slices.SortStableFunc(all, func(a, b path) int { return cmp.Compare(a.distance, b.distance) })
	if !ucxtcp.IsLocal(all[0].at.Addr()) {
		all = slices.DeleteFunc(all, func(p path) bool { return ucxtcp.IsLocal(p.at.Addr()) })
	}
	if len(all) > 1 {
		for i := range all {
			all[i].params.Dial = uct.DialNow // the lane accepts no operation before it is connected
		}
	}
	return all, nil
}

// canTryNext reports whether nothing was sent on the lane of the EP and the peer has another interface that was not tried.
func (e *EP) canTryNext() bool { return len(e.untried) > 0 && !e.lane.Opened() }

// tryNext connects an EP whose lane has failed to the next interface of its peer. It returns false if there is none, or if
// the EP has sent data.
func (e *EP) tryNext() bool {
	for e.canTryNext() {
		lane, err := e.w.tcp.NewEP(e.untried[0].params)
		e.untried = e.untried[1:]
		if err != nil {
			e.why = append(e.why, err)
			continue
		}
		e.replaceLane(lane.(*ucxtcp.EP))
		return true
	}
	return false
}

// replaceLane closes the lane of the EP, on which nothing was sent, and uses the given one.
func (e *EP) replaceLane(lane *ucxtcp.EP) {
	e.lane.PurgePending(func(*uct.PendingReq) {})
	e.waiting = false
	delete(e.w.lanes, e.lane)
	_ = e.lane.Close() // it has failed already
	e.lane, e.am = lane, lane.Ops().AM
	e.w.lanes[lane] = e
	e.sendQueued()
}
