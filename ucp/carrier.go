package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
)

// newCarrier makes the carrier of an EP's handshake: the auxiliary lane.
func newCarrier(e *EP) conn.Carrier { return conn.NewAM(&carrierHost{e}, e.peer.Aux, wire.AMWireup) }

// carrierHost implements conn.Host for an EP.
type carrierHost struct{ e *EP }

func (h *carrierHost) iface(p conn.Path) *iface { return h.e.w.ifaces[p.Local] }

// Open implements conn.Host.
func (h *carrierHost) Open(p conn.Path, c *conn.AM) (uct.EP, error) {
	i, params := h.iface(p), h.e.carrierParams(p)
	ep, err := i.NewEP(params)
	if params.Dial == uct.DialedByPeer && errors.Is(err, uct.ErrUnreachable) {
		return nil, fmt.Errorf("%w: %w", conn.ErrNotYet, err)
	}
	if err != nil {
		return nil, err
	}
	i.Retain()
	h.e.w.lanes.byEP[ep] = laneOwner{h.e, c}
	return ep, nil
}

// Close implements conn.Host.
func (h *carrierHost) Close(p conn.Path, ep uct.EP) {
	delete(h.e.w.lanes.byEP, ep)
	h.e.w.addCloseError(ep.Close())
	h.iface(p).Release()
}

// Excluded implements conn.Host.
func (h *carrierHost) Excluded(p conn.Path) bool { return h.e.link.conn.Excluded(p.Local, p.Remote) }

// Drain implements conn.Host.
func (h *carrierHost) Drain(p conn.Path, drains bool) {
	if drains {
		h.iface(p).BeginDrain()
	} else {
		h.iface(p).EndDrain()
	}
}

// Limit implements conn.Host.
func (h *carrierHost) Limit(p conn.Path) int { return h.iface(p).attr.AM.MaxBcopy }

// Name implements conn.Host.
func (h *carrierHost) Name(p conn.Path, err error) error { return h.iface(p).failure(err) }

// Attention implements conn.Host.
func (h *carrierHost) Attention() { h.e.w.schedule(h.e) }
