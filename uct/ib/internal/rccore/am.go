package rccore

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// amHeaderLen is the length of the header that AMShort puts before the payload.
const amHeaderLen = 8

// AMShort implements uct.AMSender: an inline send.
func (e *EP) AMShort(id uint8, hdr uint64, payload []byte) error {
	it := e.it
	if len(payload) > it.MaxInline-amHeaderLen {
		return uct.ErrTooLong
	}
	flags := verbs.SendInline
	if e.Credits <= 0 || e.PI-e.CI >= e.Room || id > uct.MaxAMID {
		extra, err := e.admitAM(id)
		if err != nil {
			return err
		}
		flags |= extra
	}
	binary.LittleEndian.PutUint64(it.scratch[:], hdr)
	n := amHeaderLen + copy(it.scratch[amHeaderLen:], payload)
	wr := &it.am[0]
	wr.Inline = wr.Inline[:n]
	wr.Flags = flags | e.signal()
	wr.Imm = e.ConsumeCredit(id)
	return e.post(&it.am)
}

// admitAM is admit for active messages.
func (e *EP) admitAM(id uint8) (verbs.SendFlags, error) {
	if id > uct.MaxAMID {
		return 0, uct.ErrInvalidParam
	}
	if e.state == stateReady && e.Credits <= 0 {
		return 0, e.noCredit()
	}
	if e.PI-e.CI >= e.Room {
		return e.admit()
	}
	return 0, nil
}

// ConsumeCredit consumes a credit and returns the immediate of the message that the caller posts next. The
// immediate also returns the credits that are due.
func (e *EP) ConsumeCredit(id uint8) uint32 {
	e.Credits--
	imm := rcwire.AM(id, e.creditsDue)
	e.creditsDue = 0
	return uint32(imm)
}

// AMBcopy implements uct.AMSender.
func (e *EP) AMBcopy(id uint8, p uct.Packer) (n int, err error) {
	if id > uct.MaxAMID {
		return 0, uct.ErrInvalidParam
	}
	if e.state == stateReady && e.Credits <= 0 {
		return 0, e.noCredit()
	}
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return 0, err
	}
	n = p.Pack(e.it.tx.Bytes(buf))
	wr := e.it.resetOtherWR(verbs.OpSendWithImm, flags)
	wr.Imm = e.ConsumeCredit(id)
	return n, e.postBuffer(buf, n)
}

// AMZcopy implements uct.AMSender. It copies the header into a bounce buffer.
func (e *EP) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (pending bool, err error) {
	it := e.it
	if id > uct.MaxAMID {
		return false, uct.ErrInvalidParam
	}
	if l := &it.attr.AM; len(hdr) > l.MaxHeader || len(iov) > l.MaxIOV || len(hdr)+uct.IOVLen(iov) > l.MaxZcopy {
		return false, uct.ErrTooLong
	}
	if e.state == stateReady && e.Credits <= 0 {
		return false, e.noCredit()
	}
	sges, ok := it.md.SGEs(it.sges[:1], iov)
	if !ok {
		return false, uct.ErrInvalidParam
	}
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return false, err
	}
	sges[0] = it.tx.SGE(buf, 0, copy(it.tx.Bytes(buf), hdr))
	if len(hdr) == 0 {
		sges = sges[1:]
	}
	wr := it.resetOtherWR(verbs.OpSendWithImm, flags|e.ownSignal())
	wr.SGList, wr.Imm = sges, e.ConsumeCredit(id)
	o := it.ops.get()
	o.kind, o.buf, o.comp = opSend, buf, c
	if err = e.post(&it.otherWR); err != nil {
		e.dropOp(o)
		return false, err
	}
	e.queue(o)
	return true, nil
}
