package ucp

import (
	"cmp"
	"errors"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Large transfers are split over several lanes, if there are lanes over different devices: those of
// the role rma_bw. A put, a get or the data of an announced message is split in proportion to the
// bandwidths of the lanes. Each part is a request whose parent is the request of the whole, which
// completes when all parts are complete.
//
// If a lane breaks while a part is in flight, a get and the data of a message whose receiver has no
// result yet are posted again over another lane. This happens after both sides have closed the
// lane, so that nothing of the first attempt can arrive late. A part of a put of the caller is not
// repeated: it fails with the reason, as every put does.

// proto.Rails has room for all lanes that package selection chooses.
var _ = [1]struct{}{}[selection.MaxRails-proto.MaxRails]

// sharedBy returns the lanes that share the bytes of a request: at most how.rails, each of which
// can access the memory of both sides.
func (r *Request) sharedBy(how sharing) (use railSet) {
	l := r.ep.link
	for i := range l.rails.Len() {
		n := l.rails.lanes[i]
		if use.Len() < how.rails && r.reaches(&l.lanes.All[n]) {
			use.add(n, l.rails.Weight(i))
		}
	}
	use.Rails = use.For(len(r.buf), how.chunk)
	return use
}

// reaches reports whether a lane can access the memory of both sides: there is a key for its
// domain, and the local buffer, if it is registered, is registered with its domain.
func (r *Request) reaches(x *lane) bool {
	d, md := x.Iface.domain, r.ep.peer.Addr.Resources[x.Remote].MD
	if d.Attr.RKeyLen > 0 && r.target.key.packed.Find(int(md)) == nil {
		return false
	}
	return r.mem == nil || !d.Attr.NeedMemH || r.mem.In(d) != nil
}

// chooseRails splits the request over several lanes if it is large enough and there are such lanes.
// Otherwise it requests them for later transfers.
func (r *Request) chooseRails() {
	s, l := r.stage.split, r.ep.link
	if s == nil {
		return
	}
	how := s.share(&r.worker.ctx.cfg)
	if how.rails < 2 || len(r.buf) < 2*how.chunk {
		return
	}
	l.needRails()
	if x := l.lanes.Use[wireup.RMA]; l.rails.Len() > 1 && x.Connected {
		if use := r.sharedBy(how); use.Len() > 1 {
			r.stage = s
		}
	}
}

// postSplit starts one request for each part.
func (r *Request) postSplit() error {
	use, from := r.sharedBy(r.stage.share(&r.worker.ctx.cfg)), 0
	if use.Len() == 0 { // the lanes have failed since chooseRails
		l := &r.ep.link.lanes
		use.add(uint8(l.Index(l.Use[wireup.RMA])), 1)
	}
	ends := use.Bounds(len(r.buf))
	for i := range use.Len() {
		part := r.worker.newRequest(r.ep, r.stage.part)
		part.buf, part.mem, part.target = r.buf[from:ends[i]], r.mem, peerRange{r.target.key, r.target.addr + uint64(from)}
		part.lane, part.parent = use.lanes[i], r
		r.comp.Count++
		if part, _ = part.start(); part != nil { // the parent has the error, too
			part.Release()
		}
		from = ends[i]
	}
	r.off = from
	r.flags |= reqPosted
	return nil
}

// postPart moves the bytes of a part over its lane.
func (r *Request) postPart(tables func(*transfers) *[2]proto.Table, by *calls) error {
	l := r.ep.link
	x := &l.lanes.All[r.lane]
	if !x.Active {
		r.fail(l.lanes.LastLost())
		return nil
	}
	err := r.markMissingKey(x, r.moveOver(x, tables, by))
	if r.flags&reqPosted != 0 && !x.Connected {
		l.markConnected(x)
	}
	return err
}

// markMissingKey returns the error with which a lane has rejected a part of the data of a message. The lane
// may lack a key, because the memory was registered for the message with the domain of another lane
// that broke. Then the transfer fails in a way that it can be repeated over another lane, after
// both sides have closed the broken one.
func (r *Request) markMissingKey(x *lane, err error) error {
	if err == nil || err == uct.ErrNoResource {
		return err
	}
	_, unknown := r.target.key.resolve(x.Iface.index, x.Remote)
	if unknown == nil && !errors.Is(err, errNoPieces) {
		return err
	}
	if !r.markUnreachable() { // a put or get of the caller
		return err
	}
	r.fail(cmp.Or(r.ep.link.lanes.LastLost(), statusOf(err)))
	return nil
}

// sharesRMA reports whether several lanes share large puts and gets.
func (e *EP) sharesRMA() bool {
	return e.link.rails.Len() > 1 && e.w.ctx.cfg.rmaSharing().rails > 1
}

// shortTransfers is transfers with the limits of single calls below the least length that is
// shared.
func (i *iface) shortTransfers() *transfers {
	if i.short == nil {
		t, most := *i.transfers(), 2*i.w.ctx.cfg.rmaSharing().chunk-1
		for _, n := range []*int{&t.putZcopy.max, &t.getZcopy.max, &t.shortPut, &t.copy, &t.copyGet} {
			*n = min(*n, most)
		}
		i.short = &t
	}
	return i.short
}

// Stages of parts.
var (
	putPartStage = stage{class: &keyClass, name: "put", sized: true, role: noRole, post: postPutPart, pinned: true, usesBuffer: true, unfenced: true}
	getPartStage = stage{
		class: &keyClass, name: "get", sized: true, role: noRole, post: postGetPart, done: (*Request).partEnded, again: &getAgainStage,
		pinned: true, usesBuffer: true, unfenced: true,
	}
	getAgainStage = stage{
		class: &keyClass, name: "get", sized: true, role: wireup.RMA, post: postGetAgain, done: (*Request).partEnded, usesBuffer: true, unfenced: true,
	}
)

func postPutPart(r *Request) error { return r.postPart(putTables, &putCalls) }
func postGetPart(r *Request) error { return r.postPart(getTables, &getCalls) }

func postGetAgain(r *Request) error {
	return r.markMissingKey(r.ep.link.lanes.Use[wireup.RMA], postGet(r))
}

// railMove returns the cost of a move of n bytes over the lanes that share it, or m if it is not
// split.
func (e *EP) railMove(m proto.Move, n int) proto.Move {
	if e.link == nil || m.Piece == 0 {
		return m
	}
	how := e.w.ctx.cfg.rndvSharing()
	use := e.link.rails.Rails
	use.Limit(how.rails)
	if use = use.For(n, how.chunk); use.Len() < 2 {
		return m
	}
	return use.Shared(m)
}
