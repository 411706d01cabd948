package ucp

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Get reads len(buf) bytes from raddr at the peer, in the region of key, into buf.
// A nil request says that the data is there; otherwise buf is gucx's until the
// request has ended. Errors as [EP.Put].
func (e *EP) Get(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if len(buf) <= key.maxGet && key.ep == e && len(buf) > 0 && p.permits(buf) {
		r := e.w.newRequest(e, opGet)
		pending, err := key.get.GetBcopy(r.newFragment(buf), len(buf), raddr, key.rma, &r.comp)
		if r, busy, err := r.direct("get", pending, err); !busy {
			return r, err
		}
	}
	if e.w.lateKeys && key.bindLate(wireup.RMA) {
		r, err := e.Get(buf, raddr, key, p)
		key.unbind()
		return r, err
	}
	r, err := e.transfer(opGet, buf, raddr, key, p)
	if r == nil || err != nil {
		return nil, err
	}
	return r.start()
}

// getPiece posts the next piece by the variant that suits what is left.
func (r *Request) getPiece(l *lane, key uct.RKey) (int, error) {
	rest := r.buf[r.off:]
	raddr := r.raddr + uint64(r.off)
	caps, limits := l.iface.attr.Caps, &l.iface.attr.Get
	if len(rest) <= limits.MaxShort && caps.Has(uct.CapGetShort) {
		return len(rest), l.get.GetShort(rest, raddr, key)
	}
	n := r.zcopyLen(l, limits, caps.Has(uct.CapGetZcopy))
	var pending bool
	var err error
	r.comp.Count++
	if n > 0 {
		pending, err = l.get.GetZcopy(r.piece(l, n), raddr, key, &r.comp)
	} else {
		n = min(len(rest), limits.MaxBcopy)
		f := r.newFragment(rest[:n])
		pending, err = l.get.GetBcopy(f, n, raddr, key, &r.comp)
		if err != nil {
			r.dropFragment()
		}
	}
	if !pending {
		r.comp.Count--
	}
	return n, err
}
