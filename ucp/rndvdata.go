package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs"
)

// fetch fetches the data of a rendezvous message for r. Data for a list goes to a buffer of the worker first, unless
// gets can write it to the pieces. Data for an Unpacker is unpacked as it arrives, without such a buffer, because
// nothing limits the length in the RTS of the peer.
func (d *typedData) fetch(r *Request, a *announced, by *schemeStages) {
	if a.fetchPieces(r, &d.data, by) {
		return
	}
	if d.data.Generic() && a.n > 0 {
		a.fetchInOrder(r, by)
		return
	}
	r.buf = r.worker.messages.buffers.get(min(a.n, d.data.Len()))
	a.fetch(r, by)
}

// fetchInOrder requests the data in fragments, in order, for r, a receive of data without addresses.
func (a *announced) fetchInOrder(r *Request, by *schemeStages) {
	r.ep, r.buf, r.off, r.stage = a.e, nil, 0, &by[proto.Fragments]
	*recordOf[fetchRecord](r) = fetchRecord{id: a.id, n: a.n, inOrder: true}
	a.e.w.stats.fetched[proto.Fragments].Inc()
	r.awaitPeer()
	r.request(a.id, proto.Fragments)
	r.posted()
}

// fetched runs when r, for which fetch was called, has completed. It sets the result.
func (d *typedData) fetched(r *Request) {
	if r.buf != nil { // otherwise the data is in the pieces, or was unpacked
		if r.status == ucs.StatusOK || r.status == ucs.StatusTruncated {
			d.write(0, r.buf)
		}
		r.worker.messages.buffers.put(r.buf)
	}
	r.status = d.finish(r.status.Err())
}
