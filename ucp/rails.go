package ucp

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// What takes long is shared by several lanes, if there are some over different devices: the
// lanes of the role rma_bw. A put, a get or the data of an announced message is split by their
// bandwidths, each part is a request of its own whose parent is that of the whole, and the
// whole ends when all parts have.
//
// A part that is under way over a lane which breaks is posted anew over another one, where
// nobody knows yet what became of it: a get, and the data of a message before its receiver
// has been told. That happens when the lane is closed at both sides, so that nothing of the
// first time comes late. A part of the caller's put is not: it ends with the reason, as every
// put does.

// proto takes as many lanes as wireup sets up.
var _ = [1]struct{}{}[wireup.MaxRails-proto.MaxRails]

// railSet is the lanes that share what takes long.
type railSet struct {
	proto.Rails
	lanes [proto.MaxRails]uint8 // their numbers, best first
}

func (s *railSet) add(lane uint8, bandwidth uint64) {
	if n := s.Len(); n < len(s.lanes) {
		s.lanes[n] = lane
		s.Add(bandwidth)
	}
}

// findRails notes which lanes share work, when that has changed.
func (l *link) findRails() {
	shares := l.conn.Lanes(wireup.RMABW)
	slices.SortStableFunc(shares, func(a, b wireup.Share) int { return cmp.Compare(b.Weight, a.Weight) })
	l.rails = railSet{}
	for _, s := range shares {
		if x := &l.lanes.All[s.Lane]; x.EP != nil && x.Active {
			l.rails.add(uint8(s.Lane), s.Weight)
		}
	}
	l.group = l.e.w.groupOf(l.sharedDomains())
}

// sharedDomains are those of the lanes that share work, and of the lane that does it alone; none
// if there is nothing to share.
func (l *link) sharedDomains() (domains region.Group) {
	x := l.lanes.Use[wireup.RMA]
	if l.rails.Len() < 2 || x == nil {
		return nil
	}
	domains = append(domains, x.Iface.domain)
	for i := range l.rails.Len() {
		if d := l.lanes.All[l.rails.lanes[i]].Iface.domain; !slices.Contains(domains, d) {
			domains = append(domains, d)
		}
	}
	slices.SortFunc(domains, func(a, b *region.Domain) int { return cmp.Compare(a.Index, b.Index) })
	return domains
}

// needRails asks for lanes that share work, once, if there are devices for more than one.
func (l *link) needRails() {
	if l.askedRails {
		return
	}
	l.askedRails = true
	if len(l.conn.Plan(wireup.RMABW)) > 1 {
		l.e.need(wireup.RMABW)
	}
}

// sharedBy are the lanes that share the bytes of a request: as many as there are of which
// each reaches the memory of both sides.
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

// reaches reports that a lane's transport has a key for the memory of the peer, and reaches the
// local buffer if that is registered at all.
func (r *Request) reaches(x *lane) bool {
	d, md := x.Iface.domain, r.ep.peer.Addr.Resources[x.Remote].MD
	if d.Attr.RKeyLen > 0 && r.key.packed.Find(int(md)) == nil {
		return false
	}
	return r.mem == nil || !d.Attr.NeedMemH || r.mem.In(d) != nil
}

// chooseRails has several lanes share the bytes of a request, if there are some, and asks for
// them otherwise.
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
	if x := l.lanes.Use[wireup.RMA]; l.rails.Len() > 1 && x.Proven {
		if use := r.sharedBy(how); use.Len() > 1 {
			r.stage = s
		}
	}
}

// postSplit starts the parts.
func (r *Request) postSplit() error {
	use, from := r.sharedBy(r.stage.share(&r.worker.ctx.cfg)), 0
	if use.Len() == 0 { // they have broken since
		l := &r.ep.link.lanes
		use.add(uint8(l.Index(l.Use[wireup.RMA])), 1)
	}
	ends := use.Bounds(len(r.buf))
	for i := range use.Len() {
		part := r.worker.newRequest(r.ep, r.stage.part)
		part.buf, part.raddr, part.key, part.mem = r.buf[from:ends[i]], r.raddr+uint64(from), r.key, r.mem
		part.lane, part.expect, part.parent = use.lanes[i], r.ep.link.losses, r
		r.comp.Count++
		if part, _ = part.start(); part != nil { // an error is the parent's, too
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
	err := r.keyed(x, r.moveOver(x, tables, by))
	if r.flags&reqPosted != 0 && !x.Proven {
		l.prove(x)
	}
	return err
}

// partEnded ends a transfer that is repeated if its lane broke.
func (r *Request) partEnded() {
	if st := r.comp.Status; !r.repeats(st) {
		r.settle(st)
	}
}

// repeats keeps a transfer that ended with a status until it is known whether a lane has broken,
// which the transport may tell later. It reports false if that makes no difference.
func (r *Request) repeats(st ucs.Status) bool {
	e := r.ep
	switch {
	case r.flags&reqDecided != 0:
		return false
	case st == ucs.StatusOK || e.state > epClosing || e.aborting != ucs.StatusOK || r.unwanted():
		return false
	case r.flags&reqUnreached != 0 && r.stage.instead == nil: // the request that it is a part of goes another way
		return false
	case (st == ucs.StatusRemoteAccess || st == ucs.StatusRemoteInvalid) && r.flags&reqUnreached == 0: // every lane would break
		return false
	case r.parent != nil && r.parent.comp.Status != ucs.StatusOK:
		return false
	}
	r.trackUnposted()
	e.link.undecided, e.link.pause = append(e.link.undecided, r), decidePause
	e.w.schedule(e)
	return true
}

// keyed is the error with which a lane has refused a part of the data of a message. The lane may
// lack a key: the memory was registered for the message with the domain of another lane, which
// broke. Then the data goes another way, as soon as the broken lane is closed at both sides.
func (r *Request) keyed(x *lane, err error) error {
	if err == nil || err == uct.ErrNoResource {
		return err
	}
	_, unknown := r.key.resolve(x.Iface.index, x.Remote)
	if unknown == nil && !errors.Is(err, errNoPieces) {
		return err
	}
	if !r.unreached() { // the caller's
		return err
	}
	r.fail(cmp.Or(r.ep.link.lanes.LastLost(), statusOf(err)))
	return nil
}

// unwanted reports that the caller has given up the operation.
func (r *Request) unwanted() bool {
	for ; r != nil; r = r.parent {
		if r.flags&reqGivenUp != 0 {
			return true
		}
	}
	return false
}

// decidePause is how often Progress works an EP off before it is decided what becomes of a
// transfer: a transport whose call refuses to work tells of the failure at the next Progress, and
// the worker may have polled it already in this one.
const decidePause = 2

// decide repeats transfers whose lane broke, and ends the others. As long as the peer may still
// use a lane that broke they wait.
func (l *link) decide() {
	if len(l.undecided) > 0 && l.pause > 0 {
		l.pause--
		l.e.w.schedule(l.e)
		return
	}
	list := l.undecided
	l.undecided = nil
	for _, r := range list {
		switch {
		case r.expect == l.losses && r.flags&reqUnreached == 0:
			r.flags |= reqDecided
			r.stage.done(r)
		case l.retiring():
			l.undecided = append(l.undecided, r)
		default:
			r.repeat()
		}
	}
}

// retiring reports that a lane which broke is not closed yet at both sides.
func (l *link) retiring() bool {
	for i := range l.lanes.All {
		if x := &l.lanes.All[i]; x.Retired && x.EP != nil {
			return true
		}
	}
	return false
}

// repeat posts a transfer anew, over the lane that puts and gets have now.
func (r *Request) repeat() {
	r.worker.stats.repeatedTransfers.Inc()
	if r.flags&reqUnreached != 0 {
		r.flags &^= reqUnreached
		r.stage.instead(r)
	} else if s := r.stage.again; s != nil {
		r.stage = s
	}
	if r.pieces != nil {
		r.pieces.at = 0
	}
	r.off, r.expect = 0, r.ep.link.losses
	r.comp.Count, r.comp.Status = 1, ucs.StatusOK
	r.flags = r.flags&^reqPosted | reqAhead
	r.launch()
}

// endUndecided ends what waits to be repeated: the EP goes.
func (l *link) endUndecided(st ucs.Status) {
	list := l.undecided
	l.undecided = nil
	for _, r := range list {
		r.settle(st)
	}
}

// sharesRMA reports that several lanes share long puts and gets.
func (e *EP) sharesRMA() bool {
	return e.link.rails.Len() > 1 && e.w.ctx.cfg.rmaSharing().rails > 1
}

// shortTransfers are those of the transport but that one call moves no more than what is never
// shared.
func (i *iface) shortTransfers() *transfers {
	if i.short == nil {
		t, most := *i.transfers(), 2*i.w.ctx.cfg.rmaSharing().chunk-1
		for _, n := range []*int{&t.putBare.max, &t.getBare.max, &t.shortPut, &t.copy, &t.copyGet} {
			*n = min(*n, most)
		}
		i.short = &t
	}
	return i.short
}

// Parts of what several lanes share.
var (
	putPartStage = stage{name: "put", sized: true, role: noRole, post: postPutPart, pinned: true, lends: true, ahead: true}
	getPartStage = stage{
		name: "get", sized: true, role: noRole, post: postGetPart, done: (*Request).partEnded, again: &getAgainStage,
		pinned: true, lends: true, ahead: true,
	}
	getAgainStage = stage{
		name: "get", sized: true, role: wireup.RMA, post: postGetAgain, done: (*Request).partEnded, lends: true, ahead: true,
	}
)

func postPutPart(r *Request) error { return r.postPart(putTables, &putCalls) }
func postGetPart(r *Request) error { return r.postPart(getTables, &getCalls) }

func postGetAgain(r *Request) error {
	return r.keyed(r.ep.link.lanes.Use[wireup.RMA], postGet(r))
}

// railMove is a way of n bytes over the lanes that share them.
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
