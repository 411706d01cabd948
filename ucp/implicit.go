package ucp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// implicit are the operations of an EP that have no request.
type implicit struct {
	// comp counts those that are under way, and one more as long as nobody waits for their
	// end: it fires only when it is told to.
	comp    uct.Completion
	awaited bool
	iov     [1]uct.IOV // of the operation that is being posted
}

// PutImplicit is Put without a request, for many of them before a flush: buf is the
// caller's again, and the data at the peer, when the next flush of the EP or of the worker
// has ended. A put that fails later fails its lane, which the flush reports. UCX calls it
// ucp_put_nbi. Errors: as [EP.Put].
func (e *EP) PutImplicit(buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	if key != nil && len(buf) <= key.maxShort && key.ep == e && key.opens(raddr, uint64(len(buf))) &&
		key.put.PutShort(buf, raddr, key.rma) == nil {
		return nil
	}
	if key != nil && key.put != nil {
		if iov := key.implicitIOV(&key.moves.putBare, e, buf, raddr, p); iov != nil {
			e.implicit.comp.Count++
			pending, err := key.put.PutZcopy(iov, raddr, key.rma, &e.implicit.comp)
			if pending && err == nil {
				return nil
			}
			e.implicit.comp.Count--
			if err == nil {
				return nil
			}
		}
	}
	return letGo(e.Put(buf, raddr, key, p))
}

// GetImplicit is Get without a request, for many of them before a flush: the data is in
// buf, which is gucx's until then, when the next flush of the EP or of the worker has ended.
// UCX calls it ucp_get_nbi. Errors: as [EP.Put].
func (e *EP) GetImplicit(buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	if key == nil || key.get == nil || key.ep != e {
		return letGo(e.Get(buf, raddr, key, p))
	}
	var pending bool
	var err error
	if len(buf) <= key.maxGet && len(buf) > 0 && key.opens(raddr, uint64(len(buf))) && (p == nil || p.copies(buf, key.moves.getBare.min)) {
		c := e.implied()
		c.Count++
		pending, err = key.get.GetBcopy(buf, raddr, key.rma, c)
	} else {
		iov := key.implicitIOV(&key.moves.getBare, e, buf, raddr, p)
		if iov == nil {
			return letGo(e.Get(buf, raddr, key, p))
		}
		e.implicit.comp.Count++
		pending, err = key.get.GetZcopy(iov, raddr, key.rma, &e.implicit.comp)
	}
	if pending && err == nil {
		return nil
	}
	e.implicit.comp.Count--
	if err == nil {
		return nil
	}
	return letGo(e.Get(buf, raddr, key, p)) // has to wait, or says what is wrong
}

// letGo releases a request whose end the caller learns by a flush.
func letGo(r *Request, err error) error {
	if r != nil {
		r.Release()
	}
	return err
}

// implicitIOV is the scatter list of a put or get that one call does without a copy; nil
// if it does not.
func (k *RKey) implicitIOV(b *bare, e *EP, buf []byte, raddr uint64, p *OpParams) []uct.IOV {
	mem, ok := k.fits(b, e, buf, raddr, p)
	if !ok {
		return nil
	}
	e.implied()
	x := &e.implicit.iov[0]
	x.Buf, x.Mem = buf, nil
	if mem != nil {
		x.Mem = mem.In(k.moves.domain)
	}
	return e.implicit.iov[:]
}

// implied is the completion of operations without a request.
func (e *EP) implied() *uct.Completion {
	if e.implicit == nil {
		e.makeImplicit()
	}
	return &e.implicit.comp
}

//go:noinline
func (e *EP) makeImplicit() {
	e.implicit = &implicit{}
	e.implicit.comp.Count = 1
	e.implicit.comp.Func = func(c *uct.Completion) {
		c.Count, c.Status = 1, ucs.StatusOK
		e.implicit.awaited = false
		e.emptied()
	}
}

// underway reports that some have not ended.
func (i *implicit) underway() bool { return i != nil && (i.awaited || i.comp.Count > 1) }

// await has the EP told when the last of them has ended, if some are under way.
func (i *implicit) await() {
	if i.underway() && !i.awaited {
		i.awaited = true
		i.comp.Count--
	}
}
