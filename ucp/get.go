package ucp

import (
	"context"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// getStage posts the rest of a get, piece by piece.
var getStage = stage{
	class: &keyClass, name: "get", sized: true, role: wireup.RMA, choose: (*Request).chooseRails, split: &getSplitStage, post: postGet,
	tryCancel: unposted, usesBuffer: true,
}

// getSplitStage gets over several lanes.
var getSplitStage = stage{
	class: &keyClass, name: "get", sized: true, role: wireup.RMA, post: (*Request).postSplit, part: &getPartStage,
	share: (*Config).rmaSharing, usesBuffer: true, tryCancel: unposted,
}

// Get reads len(buf) bytes from raddr at the peer, in the region of key, into buf.
// If the request is nil, the data is in buf; otherwise buf belongs to gucx until the
// request is complete. Errors as [EP.Put].
func (e *EP) Get(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if key != nil && len(buf) <= key.maxGet && key.ep == e && len(buf) > 0 && key.opens(raddr, uint64(len(buf))) && (p == nil || p.Flags == 0 && p.copies(buf, key.moves.getZcopy.min)) {
		r := e.w.newDirect()
		r.ep, r.stage = e, &getStage
		r.off = len(buf)
		pending, err := key.get.GetBcopy(buf, raddr, key.rma, &r.comp)
		if err == nil {
			if pending {
				return r.markPending(), nil
			}
			r.recycleCompleted()
			return nil, nil
		}
		if r, busy, err := r.notPending(err); !busy {
			return r, err
		}
	}
	return e.getSlow(buf, raddr, key, p)
}

// getSlow implements Get for a get that one call of GetBcopy cannot do: by one call of GetZcopy if possible, otherwise with
// a request.
//
//go:noinline
func (e *EP) getSlow(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if key == nil {
		return nil, e.refusal(action{stage: &getStage, n: len(buf)}, key)
	}
	if p.flags() != 0 {
		return e.getFlagged(buf, raddr, key, p)
	}
	if m := key.moves; m != nil && key.get != nil {
		if r := key.newZcopy(&m.getZcopy, &getStage, e, buf, raddr, p); r != nil {
			pending, err := key.get.GetZcopy(r.iov[:], raddr, key.rma, &r.comp)
			if pending && err == nil {
				return r.markPendingZcopy(), nil
			}
			if r, busy, err := r.notPending(err); !busy {
				return r, err
			}
		}
	}
	r, err := e.transfer(&getStage, uct.AccessRemoteRead, buf, raddr, key, p)
	if r == nil || err != nil {
		return nil, err
	}
	return r.start()
}

// getFlagged is Get with flags. With CompleteNow it reads memory that Slice has mapped: other gets may wait for the peer.
func (e *EP) getFlagged(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	mem, err := e.checkTransfer(&getStage, uct.AccessRemoteRead, buf, raddr, key, p)
	if err != nil || len(buf) == 0 {
		return e.w.completeLater(p, nil, err)
	}
	if p.Flags&CompleteNow != 0 {
		if view := key.packed.View(); view != nil && e.fence.count == 0 {
			copy(buf, view[raddr-key.Addr():])
			return nil, nil
		}
		return nil, uct.ErrNoResource
	}
	r := e.newTransfer(&getStage, buf, raddr, key, p)
	r.setMem(mem, uct.AccessRemoteRead)
	r, err = r.start()
	return e.w.completeLater(p, r, err)
}

// GetWait is Get, and returns when the data is in buf. If ctx is done first, it returns the error of ctx
// and buf belongs to the caller; if buf is longer than 8 KiB or registered, or p has flags, the call first waits as
// [EP.PutWait] does until the transports have stopped using it.
func (e *EP) GetWait(ctx context.Context, buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	if ctx.Done() != nil && len(buf) <= maxStaged && (p == nil || p.Mem == nil && p.Flags == 0) {
		return e.getStaged(ctx, buf, raddr, key)
	}
	r, err := e.Get(buf, raddr, key, p)
	return e.w.finishBlocking(ctx, r, err)
}

// getStaged gets into a buffer of the worker and then copies the data to buf. If the caller abandons the get, the transport
// continues to use the buffer of the worker, so the call need not wait and the EP need not fail. getStaged ends the
// blocking call.
func (e *EP) getStaged(ctx context.Context, buf []byte, raddr uint64, key *RKey) error {
	w := e.w
	staged := w.rma.staged
	w.rma.staged = nil
	if staged == nil {
		staged = make([]byte, maxStaged)
	}
	r, err := e.Get(staged[:len(buf)], raddr, key, nil)
	if r != nil {
		r.stage = &stagedStage
	}
	if err = w.finishBlocking(ctx, r, err); err == nil {
		copy(buf, staged)
		w.rma.staged = staged
	}
	return err
}

// stagedStage is getStage for a get into the worker's own buffer: the transport does not use the
// caller's buffer.
var stagedStage = func() stage { s := getStage; s.usesBuffer = false; return s }()

// maxStaged is the maximum length of a get, in bytes, that first reads into a buffer of the worker
// if its context can end. The copy is cheap compared to the wait.
const maxStaged = 8 << 10
