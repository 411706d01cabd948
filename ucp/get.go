package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// getStage gets what is left, piece by piece.
var getStage = stage{
	name: "get", sized: true, role: wireup.RMA, choose: (*Request).chooseRails, split: &getSplitStage, post: postGet,
	stop: unposted, lends: true,
}

// getSplitStage gets over several lanes.
var getSplitStage = stage{
	name: "get", sized: true, role: wireup.RMA, post: (*Request).postSplit, part: &getPartStage,
	share: (*Config).rmaSharing, lends: true, stop: unposted,
}

func postGet(r *Request) error { return r.move(getTables, &getCalls) }

func getTables(t *transfers) *[2]proto.Table { return &t.get }

var getCalls = calls{proto.None: noCall, proto.Short: getShort, proto.Bcopy: getBcopy, proto.Zcopy: getZcopy}

func getShort(r *Request, l *lane, key uct.RKey, n int) error {
	buf, raddr := r.part(n)
	return l.Get.GetShort(buf, raddr, key)
}

func getBcopy(r *Request, l *lane, key uct.RKey, n int) error {
	buf, raddr := r.part(n)
	r.comp.Count++
	return r.took(l.Get.GetBcopy(buf, raddr, key, &r.comp))
}

func getZcopy(r *Request, l *lane, key uct.RKey, n int) error {
	iov, raddr := r.piece(l, n)
	r.comp.Count++
	return r.took(l.Get.GetZcopy(iov, raddr, key, &r.comp))
}

// Get reads len(buf) bytes from raddr at the peer, in the region of key, into buf.
// A nil request says that the data is there; otherwise buf is gucx's until the
// request has ended. Errors as [EP.Put].
func (e *EP) Get(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if key != nil && len(buf) <= key.maxGet && key.ep == e && len(buf) > 0 && key.opens(raddr, uint64(len(buf))) && (p == nil || p.copies(buf, key.moves.getBare.min)) {
		r := e.w.newDirect()
		r.ep, r.stage = e, &getStage
		r.off = len(buf)
		pending, err := key.get.GetBcopy(buf, raddr, key.rma, &r.comp)
		if err == nil {
			if pending {
				return r.underway(), nil
			}
			r.endedAtOnce()
			return nil, nil
		}
		if r, busy, err := r.notPending(err); !busy {
			return r, err
		}
	}
	return e.getSlow(buf, raddr, key, p)
}

// getSlow gets what does not go with one get that is copied: by one call without a copy if
// that will do, and by a request otherwise.
//
//go:noinline
func (e *EP) getSlow(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if key == nil {
		return nil, e.refusal(action{stage: &getStage, n: len(buf)}, key)
	}
	if m := key.moves; m != nil && key.get != nil {
		if r := key.newBare(&m.getBare, &getStage, e, buf, raddr, p); r != nil {
			pending, err := key.get.GetZcopy(r.iov[:], raddr, key.rma, &r.comp)
			if pending && err == nil {
				return r.underwayBare(), nil
			}
			if r, busy, err := r.notPending(err); !busy {
				return r, err
			}
		}
	}
	if e.w.lateKeys && key.bindLate(wireup.RMA) {
		r, err := e.Get(buf, raddr, key, p)
		key.unbind()
		return r, err
	}
	r, err := e.transfer(&getStage, uct.AccessRemoteRead, buf, raddr, key, p)
	if r == nil || err != nil {
		return nil, err
	}
	return r.start()
}
