package ucxtcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// wordLen is the length of the header of AMShort in bytes.
const wordLen = 8

// AMShort implements uct.AMSender.
func (e *EP) AMShort(id uint8, hdr uint64, payload []byte) error {
	n := wordLen + len(payload)
	if n > e.it.attr.AM.MaxShort {
		return uct.ErrTooLong
	}
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	b, err := e.reserve(frameLen + n)
	if err != nil {
		return err
	}
	putFrame(b, id, n)
	binary.LittleEndian.PutUint64(b[frameLen:], hdr)
	copy(b[frameLen+wordLen:], payload)
	e.commit(frameLen + n)
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *EP) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if id > uct.MaxAMID {
		return 0, uct.ErrInvalidParam
	}
	room := e.it.attr.AM.MaxBcopy
	b, err := e.reserve(frameLen + room)
	if err != nil {
		return 0, err
	}
	n := p.Pack(b[frameLen : frameLen+room : frameLen+room])
	putFrame(b, id, n)
	e.commit(frameLen + n)
	return n, nil
}

// AMZcopy implements uct.AMSender.
func (e *EP) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	data := uct.IOVLen(iov)
	n := len(hdr) + data
	if len(hdr) > maxHeader || n > e.it.attr.AM.MaxZcopy || len(iov) > maxIOV {
		return false, uct.ErrTooLong
	}
	if id > uct.MaxAMID || !withoutMem(iov) {
		return false, uct.ErrInvalidParam
	}
	zcopy := data > int(e.it.cfg.SendvThresh) && e.sends
	if zcopy && e.it.ops.left == 0 && e.state == epReady {
		return false, uct.ErrNoResource
	}
	head := frameLen + len(hdr)
	if !zcopy {
		head += data
	}
	b, err := e.reserve(head)
	if err != nil {
		return false, err
	}
	putFrame(b, id, n)
	copy(b[frameLen:], hdr)
	if !zcopy {
		b = b[frameLen+len(hdr):]
		for i := range iov {
			b = b[copy(b, iov[i].Buf):]
		}
		e.commit(head)
		return false, nil
	}
	return e.conn.sendZcopy(e, head, iov, c), nil
}

// withoutMem reports whether iov has no memory handles, because the MD makes none.
func withoutMem(iov []uct.IOV) bool {
	for i := range iov {
		if iov[i].Mem != nil {
			return false
		}
	}
	return true
}

// sendZcopy posts a message of head bytes, which reserve returned, and the data of iov. It reports
// whether a part is not written yet.
func (c *Conn) sendZcopy(e *EP, head int, iov []uct.IOV, comp *uct.Completion) (pending bool) {
	q, o := &c.tx, c.it.ops.get()
	q.tail += head
	q.posts++
	q.streak++
	e.unflushed = true
	o.ep = e
	o.fill(iov)
	q.zcopy = o
	if !q.blocked {
		c.flush()
	}
	c.markDirty()
	if q.zcopy != o {
		return false // written and released
	}
	o.comp = comp
	return true
}
