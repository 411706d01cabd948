package ucp

import (
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// PutImplicit is Put without a request, for many puts before a flush: buf belongs to the
// caller again, and the data is at the peer, when the next flush of the EP or of the worker
// is complete. A put that fails later fails its lane, which the flush reports. It is UCX's
// ucp_put_nbi. PutImplicit ignores p.Flags. Errors: as [EP.Put].
func (e *EP) PutImplicit(buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	if key == nil || key.ep != e || key.put == nil {
		return releaseRequest(e.Put(buf, raddr, key, p.withoutFlags()))
	}
	if len(buf) <= key.maxShort {
		if key.opens(raddr, uint64(len(buf))) && key.put.PutShort(buf, raddr, key.rma) == nil {
			return nil
		}
	} else if mem, ok := key.canZcopy(&key.moves.putZcopy, buf, raddr, p); ok {
		i := e.implied()
		i.iov[0].Buf, i.iov[0].Mem = buf, mem
		i.comp.Count++
		pending, err := key.put.PutZcopy(i.iov[:], raddr, key.rma, &i.comp)
		if pending && err == nil {
			return nil
		}
		i.comp.Count--
		if err == nil {
			return nil
		}
		if err == uct.ErrNoResource {
			return e.implyLater(&impliedPutStage, buf, raddr, key, p)
		}
	}
	return releaseRequest(e.Put(buf, raddr, key, p.withoutFlags()))
}

// GetImplicit is Get without a request, for many gets before a flush: the data is in
// buf when the next flush of the EP or of the worker is complete; buf belongs to gucx until then.
// It is UCX's ucp_get_nbi. GetImplicit ignores p.Flags. Errors: as [EP.Put].
func (e *EP) GetImplicit(buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	if key == nil || key.ep != e || key.get == nil {
		return releaseRequest(e.Get(buf, raddr, key, p.withoutFlags()))
	}
	i := e.implied()
	i.comp.Count++
	var pending bool
	var err error
	if mem, ok := key.canZcopy(&key.moves.getZcopy, buf, raddr, p); ok {
		i.iov[0].Buf, i.iov[0].Mem = buf, mem
		pending, err = key.get.GetZcopy(i.iov[:], raddr, key.rma, &i.comp)
		if err == uct.ErrNoResource {
			i.comp.Count--
			return e.implyLater(&impliedGetStage, buf, raddr, key, p)
		}
	} else if len(buf) <= key.maxGet && len(buf) > 0 && key.opens(raddr, uint64(len(buf))) && (p == nil || p.copies(buf, key.moves.getZcopy.min)) {
		pending, err = key.get.GetBcopy(buf, raddr, key.rma, &i.comp)
	} else {
		err = uct.ErrNoResource
	}
	if pending && err == nil {
		return nil
	}
	i.comp.Count--
	if err == nil {
		return nil
	}
	return releaseRequest(e.Get(buf, raddr, key, p.withoutFlags())) // waits for resources, or returns the error
}

// AtomicFetchImplicit is AtomicFetch without a request: the old value is in *result when the next
// flush of the EP or of the worker is complete; result belongs to gucx until then. If the operation
// fails, the flush reports it and *result is undefined. Errors: as [EP.AtomicFetch].
func (e *EP) AtomicFetchImplicit(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key *RKey) error {
	if key.fetches(e, op, size, raddr) && result != nil && op != uct.AtomicCSwap {
		i := e.implied()
		i.comp.Count++
		pending, err := key.amo.AtomicFetch(op, size, value, result, raddr, key.amoKey, &i.comp)
		if pending && err == nil {
			return nil
		}
		i.comp.Count--
		if err == nil {
			return nil
		}
	}
	return releaseRequest(e.AtomicFetch(op, size, value, result, raddr, key))
}

// AtomicCSwapImplicit is [EP.AtomicCSwap] without a request: the old value is in *result when the next flush of the EP
// or of the worker is complete; result belongs to gucx until then. Failures and errors: as
// [EP.AtomicFetchImplicit].
func (e *EP) AtomicCSwapImplicit(size int, compare, swap uint64, result *uint64, raddr uint64, key *RKey) error {
	if key.fetches(e, uct.AtomicCSwap, size, raddr) && result != nil {
		i := e.implied()
		i.comp.Count++
		pending, err := key.amo.AtomicCSwap(size, compare, swap, result, raddr, key.amoKey, &i.comp)
		if pending && err == nil {
			return nil
		}
		i.comp.Count--
		if err == nil {
			return nil
		}
	}
	return releaseRequest(e.AtomicCSwap(size, compare, swap, result, raddr, key))
}

// impliedPutStage and impliedGetStage post an implicit operation whose lane had no resources at
// first. The request, which no user has, completes when it is posted; the operation then counts as
// the implicit ones do.
var (
	impliedPutStage = stage{class: &keyClass, name: "put", sized: true, role: wireup.RMA, post: postImpliedPut, tryCancel: unposted}
	impliedGetStage = stage{class: &keyClass, name: "get", sized: true, role: wireup.RMA, post: postImpliedGet, tryCancel: unposted, usesBuffer: true}
)

// implyLater queues a put or get that RKey.fits permits, after its lane had no resources.
//
//go:noinline
func (e *EP) implyLater(s *stage, buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	r := e.w.newRequest(e, s)
	r.buf, r.target = buf, peerRange{key, raddr}
	if p != nil {
		r.mem = (*region.Mem)(p.Mem)
	}
	return releaseRequest(r.startFull())
}

func postImpliedPut(r *Request) error {
	l := r.ep.link.lanes.Use[wireup.RMA]
	key, iov, ok := r.zcopyArgs(l, &l.Iface.transfers().putZcopy)
	if !ok {
		return postPut(r)
	}
	i := r.ep.implied()
	i.comp.Count++
	return r.implied(l.Put.PutZcopy(iov, r.target.addr, key, &i.comp))
}

func postImpliedGet(r *Request) error {
	l := r.ep.link.lanes.Use[wireup.RMA]
	key, iov, ok := r.zcopyArgs(l, &l.Iface.transfers().getZcopy)
	if !ok {
		return postGet(r)
	}
	i := r.ep.implied()
	i.comp.Count++
	return r.implied(l.Get.GetZcopy(iov, r.target.addr, key, &i.comp))
}

// zcopyArgs returns the arguments of one call over l that moves all of r without a copy. ok is false if
// there is no such call. b has the permitted lengths. The lane may have changed since r was queued.
func (r *Request) zcopyArgs(l *lane, b *zcopyRange) (key uct.RKey, iov []uct.IOV, ok bool) {
	n, t := len(r.buf), l.Iface.transfers()
	if n < b.min || n > b.max || r.off > 0 || t.domain.Attr.NeedMemH && t.of(r.mem) != registered {
		return 0, nil, false
	}
	key, err := r.target.key.resolve(l.Iface.index, l.Remote)
	if err != nil {
		return 0, nil, false // the usual path reports the error
	}
	return key, r.zcopyIOV(r.buf, r.mem, l.Iface.domain), true
}

// implied processes the result of the call of postImpliedPut or postImpliedGet.
func (r *Request) implied(pending bool, err error) error {
	if !pending || err != nil {
		r.ep.implicit.comp.Count--
	}
	if err == nil {
		r.off = len(r.buf)
		r.flags |= reqPosted
	}
	return err
}

// releaseRequest releases a request whose completion the caller learns from a flush.
func releaseRequest(r *Request, err error) error {
	if r != nil {
		r.Release()
	}
	return err
}
