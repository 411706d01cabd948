package ucp

import (
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A receive gets the data of a message by a child request, unless one call transfers
// it.

// getInOneCall gets the data of a message into the buffer of r with one call without a
// copy, if possible: then r has completed. It returns false if nothing was transferred or is in flight.
func (r *Request) getInOneCall(a *announced, key *RKey) bool {
	e, n := r.ep, len(r.buf)
	t := key.moves
	if key.get == nil || n < t.getZcopy.min || n > t.getZcopy.max || e.sharesData(n) {
		return false
	}
	mem := uct.Mem(nil)
	if r.mem != nil {
		mem = r.mem.In(t.domain)
	}
	if mem == nil && t.domain.Attr.NeedMemH {
		return false
	}
	child := r.worker.newDirect() // it has the completion, in case the data arrives later
	child.iov[0] = uct.IOV{Buf: r.buf, Mem: mem}
	pending, err := key.get.GetZcopy(child.iov[:], a.addr, key.rma, &child.comp)
	if pending && err == nil {
		r.delegateGet(child, a, key)
		return true
	}
	child.iov[0] = uct.IOV{}
	r.worker.recycleDirect(child)
	if err != nil {
		return false
	}
	keyDone(key)
	e.control(ackControl, a.id, uint64(ucs.StatusOK))
	r.complete(r.fetchStatus())
	return true
}

// delegateGet makes r wait for child, which has posted all of a get.
func (r *Request) delegateGet(child *Request, a *announced, key *RKey) {
	r.initGetChild(child, a, key)
	child.buf, child.mem, child.off = r.buf, r.mem, len(r.buf)
	child.flags = reqPosted | reqZcopy | reqReleased
	r.ep.list(child)
	r.awaitPeer()
	r.moveTo(placeDelegated)
	child.parent = r
	r.posted()
}

// sharesData reports whether several lanes may share n bytes of the data of a message, or the data must be
// requested.
func (e *EP) sharesData(n int) bool {
	l := e.link
	if l.railsRequested && l.rails.Len() < 2 {
		return false
	}
	how := e.w.ctx.cfg.rndvSharing()
	return how.rails > 1 && n >= 2*how.chunk
}

// getDataStage gets the data of a message for the parent receive.
var getDataStage = stage{
	class: &keyClass, name: "receive", sized: true, role: wireup.RMA, choose: (*Request).chooseRails, split: &getDataSplitStage,
	post: (*Request).getData, done: (*Request).partEnded, completed: (*Request).dataMoved, usesBuffer: true, unfenced: true,
}

// getDataSplitStage does the same over several lanes.
var getDataSplitStage = stage{
	class: &keyClass, name: "receive", sized: true, role: wireup.RMA, post: (*Request).postSplit, part: &getPartStage,
	share: (*Config).rndvSharing, completed: (*Request).dataMoved, usesBuffer: true, unfenced: true,
}

func (r *Request) getData() (err error) {
	if r.pieces != nil {
		err = r.moveList(&getList)
	} else {
		err = postGet(r)
	}
	if err != nil {
		err = r.markMissingKey(r.ep.link.lanes.Use[wireup.RMA], err)
	}
	return err
}

// closeKey closes a key that arrived with a message.
func (r *Request) closeKey() { keyDone(r.target.key) }

// get gets the data of a message.
func (r *Request) get(a *announced, key *RKey) {
	child := r.newGetChild(a, key)
	child.buf, child.mem = r.buf, r.mem
	r.startChild(child)
}

// newGetChild returns a request that gets the data of a message for r.
func (r *Request) newGetChild(a *announced, key *RKey) *Request {
	child := r.worker.newDirect()
	child.flags = 0
	r.initGetChild(child, a, key)
	return child
}

// initGetChild makes child get the data of a message for r.
func (r *Request) initGetChild(child *Request, a *announced, key *RKey) {
	child.ep, child.stage = r.ep, &getDataStage
	child.target = peerRange{key, a.addr}
}

// fetchPieces is fetch into data in pieces, without a copy. It returns false if the data must be
// copied.
func (a *announced) fetchPieces(r *Request, d *data.Buffer, by *schemeStages) bool {
	e, n := a.e, min(a.n, d.Len())
	i := e.transport(wireup.RMA)
	if n == 0 || d.Generic() || i == nil {
		return false
	}
	key := a.open(n)
	if key == nil {
		return false
	}
	v := e.rndvChoices(n, reach{gettable: true, mayRegister: i.canRegister(n)})
	x := (*pieceList)(nil)
	if v.Choose(n, e.w.ctx.cfg.rndvScheme()) == proto.Get {
		x = e.pieces(d, n, &getList)
	}
	if x == nil {
		keyDone(key)
		return false
	}
	e.w.stats.fetched[proto.Get].Inc()
	r.ep, r.buf, r.off, r.stage = e, nil, 0, &by[proto.Get]
	*recordOf[fetchRecord](r) = fetchRecord{id: a.id, n: n, inOrder: true, truncated: a.n > n}
	r.awaitPeer()
	child := r.newGetChild(a, key)
	child.pieces = x
	r.startChild(child)
	r.posted()
	return true
}
