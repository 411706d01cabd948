package rccore

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// handleReceive handles the completion of a receive.
func (it *Iface) handleReceive(wc *verbs.WC) {
	if wc.ID >= ExtensionID {
		it.ext.HandleCompletion(*wc)
		return
	}
	b := it.rx.Buf(wc.ID)
	e := it.eps.find(wc.QPN)
	if wc.Opcode == verbs.WCRecvRDMAWithImm && wc.Status == verbs.WCSuccess {
		it.handleNotify(e, b, wc.Imm)
		return
	}
	imm := rcwire.Imm(wc.Imm)
	if wc.Status != verbs.WCSuccess || wc.Flags&verbs.WCWithImm == 0 || !imm.Valid() ||
		uint64(wc.ByteLen) > uint64(b.Len()) || e == &it.eps.vacant {
		it.rx.Put(b)
		it.failReceive(e, wc)
		return
	}
	if n := imm.Credits(); n != 0 && !e.addCredits(n) {
		it.rx.Put(b)
		it.fail(e, ucs.StatusRemoteInvalid, fmt.Errorf("the peer returned %d credits too many", n))
		return
	}
	if imm.IsControl() || it.closed {
		it.handleControl(e, imm, b, int(wc.ByteLen))
		return
	}
	e.countReceived()
	it.rx.Deliver(&it.handlers, imm.ID(), b, int(wc.ByteLen))
}

// handleControl handles a control message of n bytes, or any message to an iface that is closing.
func (it *Iface) handleControl(e *EP, imm rcwire.Imm, b *buffer.RecvBuf, n int) {
	switch {
	case imm.IsDisconnect():
		it.handleDisconnect(e)
	case imm.IsExtension() && !it.closed && e.state == stateReady:
		if it.ext == nil || !it.ext.HandleControl(e.outer, b.Bytes(n)) {
			it.fail(e, ucs.StatusRemoteInvalid, errors.New("invalid message to an extension"))
		}
	}
	it.rx.Put(b)
}

// failReceive fails the EP of a receive that completed with an error or of an invalid message. If
// the EP does not exist any more, it does nothing.
func (it *Iface) failReceive(e *EP, wc *verbs.WC) {
	if e == &it.eps.vacant {
		return
	}
	switch {
	case wc.Status == verbs.WCSuccess:
		it.fail(e, ucs.StatusRemoteInvalid, fmt.Errorf("receive: %s", wc.Status))
	case wc.Status == verbs.WCWRFlushErr && e.state == stateReady:
		it.awaitCause(e, e.CI)
	default:
		it.fail(e, ib.Status(wc.Status), fmt.Errorf("receive: %s", wc.Status))
	}
}
