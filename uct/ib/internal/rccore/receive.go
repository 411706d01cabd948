package rccore

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// receive takes in one message, which the device put into a buffer.
func (it *Iface) receive(wc *verbs.WC) {
	b := it.rx.Buf(wc.ID)
	e := it.eps.find(wc.QPN)
	imm := rcwire.Imm(wc.Imm)
	if wc.Status != verbs.WCSuccess || wc.Flags&verbs.WCWithImm == 0 || !imm.Valid() ||
		uint64(wc.ByteLen) > uint64(b.Len()) || e == &it.eps.vacant {
		it.rx.Put(b)
		it.badMessage(e, wc)
		return
	}
	if n := imm.Credits(); n != 0 && !e.credited(n) {
		it.rx.Put(b)
		it.fail(e, ucs.StatusRemoteInvalid, fmt.Errorf("the peer returned %d credits too many", n))
		return
	}
	if imm.Control() || it.closed {
		it.rx.Put(b)
		if imm.Disconnects() {
			it.peerClosed(e)
		}
		return
	}
	e.creditDue()
	it.rx.Deliver(&it.handlers, imm.ID(), b, int(wc.ByteLen))
}

// badMessage fails the EP of a receive that ended with an error or of a message
// that is not ours; of an EP that is gone there is nothing to say.
func (it *Iface) badMessage(e *EP, wc *verbs.WC) {
	if e == &it.eps.vacant {
		return
	}
	st := ucs.StatusRemoteInvalid
	if wc.Status != verbs.WCSuccess {
		st = ib.Status(wc.Status)
	}
	it.fail(e, st, fmt.Errorf("receive: %s", wc.Status))
}
