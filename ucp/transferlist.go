package ucp

import (
	"context"
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A list of puts or gets has one request, the parent of the requests of its transfers. Puts that one call copies
// have no request. All transfers are checked before the first one is posted.

// Transfer is one put or get of a list: see [EP.PutList].
type Transfer struct {
	Buf  []byte // local memory; may have any length
	Addr uint64 // address of the first byte at the peer
	Key  *RKey  // key of the memory at Addr, bound to the EP of the call
}

// MaxTransfers is the maximum length of the list of [EP.PutList] and [EP.GetList]: each transfer that is not complete
// at once has a request of some hundred bytes.
const MaxTransfers = 1024

// transferKind has the differences between lists of puts and lists of gets.
type transferKind struct {
	list, one *stage                                     // of the list and of each transfer
	right     uct.Access                                 // at the target
	copies    func(e *EP, t *Transfer, p *OpParams) bool // reports whether one call copies t without a request
}

var (
	putListStage = stage{
		class: &transferListClass, name: "put list", sized: true, role: wireup.RMA, part: &putStage, tryCancel: (*Request).cancelTransfers,
	}
	getListStage = stage{
		class: &transferListClass, name: "get list", sized: true, role: wireup.RMA, part: &getStage, tryCancel: (*Request).cancelTransfers,
	}
	transferListClass = class{bufferInUse: (*Request).transferBuffersInUse, abandon: (*Request).abandonTransfers}

	putLists = transferKind{&putListStage, &putStage, uct.AccessRemoteWrite, (*EP).copiesPut}
	getLists = transferKind{&getListStage, &getStage, uct.AccessRemoteRead, func(*EP, *Transfer, *OpParams) bool { return false }}
)

// transferRecord is the state of a list and of the requests of its transfers.
type transferRecord struct {
	n uint64 // of a list: the number of requests of transfers; of such a request: the index of its transfer
}

// PutList puts all transfers of list, of which there are 1 to [MaxTransfers], with one completion. It is [EP.Put] of
// each: if the request is nil, all buffers belong to the caller again, otherwise when the request is complete. list
// belongs to the caller when PutList returns. The puts are not ordered, also if they
// overlap at the peer. OpParams.Mem must contain all buffers. A flush or fence covers all transfers.
//
// If a transfer fails, the others continue, and the request completes with the error of the first that failed.
// [Request.Cancel] succeeds if no transfer was posted. Errors: as Put, before anything was posted; ErrInvalidParam for
// an empty list, and if OpParams has flags; ErrTooLong for a list of more than MaxTransfers. If a transport returns another
// error, some transfers may have taken effect.
func (e *EP) PutList(list []Transfer, p *OpParams) (*Request, error) {
	return e.transferAll(&putLists, list, p)
}

// GetList gets all transfers of list with one completion, as [EP.PutList] puts them. If the request is nil, the data
// is in all buffers; otherwise they belong to gucx until the request is complete.
func (e *EP) GetList(list []Transfer, p *OpParams) (*Request, error) {
	return e.transferAll(&getLists, list, p)
}

// PutListWait is PutList, and returns when all buffers belong to the caller again. If ctx is done first: as
// [EP.PutWait].
func (e *EP) PutListWait(ctx context.Context, list []Transfer, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.PutList(list, p)
	return e.w.finishBlocking(ctx, r, err)
}

// GetListWait is GetList, and returns when the data is in all buffers. If ctx is done first, it returns the error of
// ctx and the buffers belong to the caller; the call first waits as [EP.PutWait] does until the transports have
// stopped using them.
func (e *EP) GetListWait(ctx context.Context, list []Transfer, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.GetList(list, p)
	return e.w.finishBlocking(ctx, r, err)
}

// transferAll checks all transfers of a list and posts them.
func (e *EP) transferAll(k *transferKind, list []Transfer, p *OpParams) (*Request, error) {
	made, err := e.newTransfers(k, list, p)
	if err != nil {
		return nil, err
	}
	r := e.w.newRequest(e, k.list)
	r.onDone = p.onDone()
	*recordOf[transferRecord](r) = transferRecord{}
	e.list(r)
	for i := range list {
		t, q := &list[i], made
		r.off += len(t.Buf)
		switch {
		case q != nil && recordOf[transferRecord](q).n == uint64(i):
			made = q.next
		case k.copies(e, t, p) && t.Key.putCopied(t.Buf, t.Addr) == nil:
			r.flags |= reqPosted
			continue
		default: // the lane has no resources, or it broke
			if q, err = e.newListed(k, t, p); err != nil {
				r.fail(statusOf(err))
			}
		}
		if q != nil {
			r.startTransfer(q)
		}
	}
	r.posted()
	return r.started()
}

// newTransfers checks a list, and returns the requests of the transfers that need one, linked by next.
func (e *EP) newTransfers(k *transferKind, list []Transfer, p *OpParams) (*Request, error) {
	a := action{stage: k.list}
	for i := range list {
		a.n += len(list[i].Buf)
	}
	switch {
	case p.flags() != 0:
		return nil, e.permitsNoFlags(a)
	case len(list) == 0:
		return nil, e.wrong(a, ucs.ErrInvalidParam, "the list is empty")
	case len(list) > MaxTransfers:
		return nil, e.wrong(a, ucs.ErrTooLong, fmt.Sprintf("a list of %d transfers, %d fit", len(list), MaxTransfers))
	}
	var first, last *Request
	for i := range list {
		if k.copies(e, &list[i], p) {
			continue
		}
		q, err := e.newListed(k, &list[i], p)
		if err != nil {
			e.w.dropTransfers(first)
			return nil, numbered(err, i)
		}
		switch {
		case q == nil: // no bytes
			continue
		case last == nil:
			first = q
		default:
			last.next = q
		}
		q.next, last = nil, q
		*recordOf[transferRecord](q) = transferRecord{uint64(i)}
	}
	return first, nil
}

// newListed checks a transfer and makes its request; nil for one of no bytes.
func (e *EP) newListed(k *transferKind, t *Transfer, p *OpParams) (*Request, error) {
	q, err := e.transfer(k.one, k.right, t.Buf, t.Addr, t.Key, p)
	if q != nil {
		q.onDone = nil
	}
	return q, err
}

// numbered adds the index of a transfer to its error.
func numbered(err error, i int) error {
	if x, ok := err.(*Error); ok {
		x.Op = fmt.Sprintf("transfer %d of a list: %s", i, x.Op)
	}
	return err
}

// dropTransfers frees requests that were not started, linked by next.
func (w *Worker) dropTransfers(q *Request) {
	for q != nil {
		next := q.next
		if q.cached != nil {
			q.releaseCached()
		}
		w.recycle(q)
		q = next
	}
}

// startTransfer starts the request of a transfer of the list r.
func (r *Request) startTransfer(q *Request) {
	q.parent = r
	r.comp.Count++
	recordOf[transferRecord](r).n++
	if q, _ = q.start(); q != nil { // r has the error, too
		q.Release()
	}
}

// copiesPut reports whether one call copies a put, which key and EP permit now.
func (e *EP) copiesPut(t *Transfer, p *OpParams) bool {
	k, n := t.Key, len(t.Buf)
	if k == nil || k.ep != e || n > max(k.maxShort, k.maxPut) || !k.opens(t.Addr, uint64(n)) {
		return false
	}
	if p == nil || p.Mem == nil {
		return true
	}
	return (*region.Mem)(p.Mem).Covers(t.Buf) && (n <= k.maxShort || n < k.moves.putZcopy.min)
}

// putCopied puts what copiesPut permits.
func (k *RKey) putCopied(buf []byte, raddr uint64) error {
	if len(buf) <= k.maxShort {
		return k.put.PutShort(buf, raddr, k.rma)
	}
	return k.put.PutBcopy(buf, raddr, k.rma)
}

// transfers returns the requests of the transfers of the list r that are not complete.
func (r *Request) transfers() (list []*Request) {
	for q := range r.ep.ops.all {
		if q.parent == r {
			list = append(list, q)
		}
	}
	return list
}

// cancelTransfers cancels all transfers of a list if none was posted, and reports whether it did.
func (r *Request) cancelTransfers() bool {
	list := r.transfers()
	complete := uint64(len(list)) < recordOf[transferRecord](r).n
	if r.flags&reqPosted != 0 || complete || slices.ContainsFunc(list, func(q *Request) bool { return !unposted(q) }) {
		return false
	}
	for _, q := range list {
		q.Cancel()
	}
	return r.Done()
}

// abandonTransfers is called when the caller gives up the list: transfers that were not posted are not posted any
// more.
func (r *Request) abandonTransfers() {
	for _, q := range r.transfers() {
		if q.parent == r {
			q.flags |= reqGivenUp
			q.Cancel()
		}
	}
}

// transferBuffersInUse reports whether a transport uses a buffer of the list.
func (r *Request) transferBuffersInUse() bool {
	for q := range r.ep.ops.all {
		if q.parent == r && q.bufferInUse() {
			return true
		}
	}
	return false
}
