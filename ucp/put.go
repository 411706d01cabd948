package ucp

import (
	"context"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Put writes buf to raddr at the peer, in the region of key. If the request is nil, buf belongs to the
// caller again. The data is at the peer after a flush. A message that is sent
// after the put may arrive before the data, because it may use another transport: call [EP.Fence]
// between the two, or use [EP.PutNotify]. buf may have any length. Errors, besides those of [EP.Err]:
//
//   - ErrInvalidRKey: key is nil, closed or belongs to another EP.
//   - ErrRemoteAccess: the range is outside the region of the key, or the key lacks the
//     right. The put had no effect, and the EP is still usable. If the target finds that the
//     region was closed or does not match the key, the EP may fail.
//   - ErrUnsupported: no transport of both sides can put and get.
func (e *EP) Put(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if p == nil && key != nil && len(buf) <= key.maxShort && key.ep == e && key.opens(raddr, uint64(len(buf))) {
		err := key.put.PutShort(buf, raddr, key.rma)
		if err == nil {
			return nil, nil
		}
		return key.ep.putRefused(err, buf[:len(buf):len(buf)], raddr, key) // without buf's capacity, which would be saved across the call
	}
	return e.putSlow(buf, raddr, key, p)
}

// putRefused continues a short put that the transport has rejected.
//
//go:noinline
func (e *EP) putRefused(err error, buf []byte, raddr uint64, key *RKey) (*Request, error) {
	if err != uct.ErrNoResource && !e.canReroute(&putStage, err) {
		return nil, e.refused(action{stage: &putStage, n: len(buf)}, err)
	}
	return e.putSlow(buf, raddr, key, nil)
}

// putStage posts the rest of a put, piece by piece.
var putStage = stage{
	class: &keyClass, name: "put", sized: true, role: wireup.RMA, choose: (*Request).chooseRails, split: &putSplitStage, post: postPut,
	tryCancel: unposted,
}

// putSplitStage puts over several lanes.
var putSplitStage = stage{
	class: &keyClass, name: "put", sized: true, role: wireup.RMA, post: (*Request).postSplit, part: &putPartStage,
	share: (*Config).rmaSharing, usesBuffer: true, tryCancel: unposted,
}

// putSlow implements Put for a put that one call of PutShort cannot do: by one call of PutBcopy or PutZcopy if possible,
// otherwise with a request.
//
//go:noinline
func (e *EP) putSlow(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if key == nil {
		return nil, e.refusal(action{stage: &putStage, n: len(buf)}, key)
	}
	if p.flags() != 0 {
		return e.putFlagged(buf, raddr, key, p)
	}
	if p != nil && len(buf) <= key.maxShort && key.ep == e && key.opens(raddr, uint64(len(buf))) {
		switch err := key.put.PutShort(buf, raddr, key.rma); {
		case err == nil:
			return nil, nil
		case err != uct.ErrNoResource && !e.canReroute(&putStage, err):
			return nil, e.refused(action{stage: &putStage, n: len(buf)}, err)
		}
	}
	if len(buf) <= key.maxPut && key.ep == e && key.opens(raddr, uint64(len(buf))) && p.copies(buf, key.moves.putZcopy.min) {
		err := key.put.PutBcopy(buf, raddr, key.rma)
		if err == nil {
			return nil, nil
		}
		if err != uct.ErrNoResource && !e.canReroute(&putStage, err) {
			return nil, e.refused(action{stage: &putStage, n: len(buf)}, err)
		}
	}
	if m := key.moves; m != nil && key.put != nil {
		if r := key.newZcopy(&m.putZcopy, &putStage, e, buf, raddr, p); r != nil {
			pending, err := key.put.PutZcopy(r.iov[:], raddr, key.rma, &r.comp)
			if pending && err == nil {
				return r.markPendingZcopy(), nil
			}
			if r, busy, err := r.notPending(err); !busy {
				return r, err
			}
		}
	}
	r, err := e.transfer(&putStage, uct.AccessRemoteWrite, buf, raddr, key, p)
	if r == nil || err != nil {
		return nil, err
	}
	return r.start()
}

// putFlagged is Put with flags.
func (e *EP) putFlagged(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	mem, err := e.checkTransfer(&putStage, uct.AccessRemoteWrite, buf, raddr, key, p)
	if err != nil || len(buf) == 0 {
		return e.w.completeLater(p, nil, err)
	}
	if p.Flags&CompleteNow != 0 {
		return nil, e.putNow(buf, raddr, key)
	}
	r := e.newTransfer(&putStage, buf, raddr, key, p)
	if p.Flags&PreferFastCompletion == 0 {
		r.setMem(mem, uct.AccessRemoteWrite)
	}
	r, err = r.start()
	return e.w.completeLater(p, r, err)
}

// putNow puts by one call that copies buf. It returns ErrNoResource if the call is not possible now. The arguments were
// checked, and buf is not empty.
func (e *EP) putNow(buf []byte, raddr uint64, key *RKey) error {
	x := e.lane(wireup.RMA)
	if x == nil {
		e.requestLane(wireup.RMA)
		return uct.ErrNoResource
	}
	k, err := key.resolve(x.Iface.index, x.Remote)
	if err != nil {
		return err
	}
	switch n, i := len(buf), x.Iface; {
	case e.fence.count > 0:
		return uct.ErrNoResource
	case n <= i.transfers().shortPut:
		err = x.Put.PutShort(buf, raddr, k)
	case i.attr.Caps.Has(uct.CapPutBcopy) && n <= i.attr.Put.MaxBcopy:
		err = x.Put.PutBcopy(buf, raddr, k)
	default:
		return uct.ErrNoResource
	}
	switch {
	case err == nil && !x.Connected:
		e.link.markConnected(x)
	case err == nil:
	case err == uct.ErrNoResource, e.canReroute(&putStage, err):
		return uct.ErrNoResource
	default:
		return e.refused(action{stage: &putStage, n: len(buf)}, err)
	}
	return nil
}

// PutWait is Put, and returns when buf belongs to the caller again. If ctx is done first, it returns
// the error of ctx: no further part of the operation is posted, posted parts take
// effect or not, and buf belongs to the caller. If a transport uses buf (a put without a
// copy), the call first waits until the transport has stopped, at most ucs.RevokeLimit; then
// the EP fails with ErrCanceled.
func (e *EP) PutWait(ctx context.Context, buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.Put(buf, raddr, key, p)
	return e.w.finishBlocking(ctx, r, err)
}
