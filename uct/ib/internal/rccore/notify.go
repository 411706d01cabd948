package rccore

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A put with notification is an RDMA write with immediate. At the target it consumes a receive, so it also
// consumes a credit, which the peer returns as for a message.

// NotifyBcopy implements uct.Notifier.
func (e *EP) NotifyBcopy(src []byte, raddr uint64, key uct.RKey, imm uint32) error {
	if len(src) > e.it.attr.Put.MaxBcopy {
		return uct.ErrTooLong
	}
	if e.state == stateReady && e.Credits <= 0 {
		return e.noCredit()
	}
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return err
	}
	n := copy(e.it.tx.Bytes(buf), src)
	wr := e.it.resetOtherWR(verbs.OpRDMAWriteWithImm, flags)
	wr.RemoteAddr, wr.RKey, wr.Imm = raddr, uint32(key), imm
	e.Credits--
	return e.postBuffer(buf, n)
}

// NotifyZcopy implements uct.Notifier.
func (e *EP) NotifyZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, imm uint32, c *uct.Completion) (pending bool, err error) {
	if e.state == stateReady && e.Credits <= 0 {
		return false, e.noCredit()
	}
	e.it.listWR[0].Imm = imm // other opcodes ignore it
	if pending, err = e.zcopyList(verbs.OpRDMAWriteWithImm, iov, raddr, key, c); err == nil {
		e.Credits--
	}
	return pending, err
}

// SetNotifyHandler implements uct.Notifier.
func (e *EP) SetNotifyHandler(h uct.NotifyHandler) {
	if e.state != stateClosed {
		e.notifyHandler = h
	}
}

// handleNotify handles received immediate data. The device has already written the put data. The buffer
// of the receive is unused.
func (it *Iface) handleNotify(e *EP, b *buffer.RecvBuf, imm uint32) {
	it.rx.Put(b)
	if e == &it.eps.vacant || it.closed {
		return
	}
	e.countReceived()
	if e.notifyHandler != nil {
		e.notifyHandler.HandleNotify(imm)
	}
}
