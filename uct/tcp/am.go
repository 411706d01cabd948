package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// AMShort implements uct.AMSender.
func (e *endpoint) AMShort(id uint8, hdr uint64, payload []byte) error {
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
	putHeader(b, frameAM, id, n)
	binary.LittleEndian.PutUint64(b[frameLen:], hdr)
	copy(b[frameLen+wordLen:], payload)
	e.commit(frameLen + n)
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *endpoint) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if id > uct.MaxAMID {
		return 0, uct.ErrInvalidParam
	}
	room := e.it.attr.AM.MaxBcopy
	b, err := e.reserve(frameLen + room)
	if err != nil {
		return 0, err
	}
	n := p.Pack(b[frameLen : frameLen+room : frameLen+room])
	putHeader(b, frameAM, id, n)
	e.commit(frameLen + n)
	return n, nil
}

// AMZcopy implements uct.AMSender.
func (e *endpoint) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	data := uct.IOVLen(iov)
	n := len(hdr) + data
	if len(hdr) > maxAMHeader || n > e.it.attr.AM.MaxZcopy || len(iov) > maxIOV {
		return false, uct.ErrTooLong
	}
	if id > uct.MaxAMID || !e.it.md.covers(iov) {
		return false, uct.ErrInvalidParam
	}
	if data <= int(e.it.cfg.SendvThresh) {
		b, err := e.reserve(frameLen + n)
		if err != nil {
			return false, err
		}
		putHeader(b, frameAM, id, n)
		copy(b[frameLen:], hdr)
		gather(b[frameLen+len(hdr):], iov)
		e.commit(frameLen + n)
		return false, nil
	}
	return e.amZcopy(id, hdr, iov, n, c)
}

// amZcopy sends from the caller's buffers.
func (e *endpoint) amZcopy(id uint8, hdr []byte, iov []uct.IOV, n int, c *uct.Completion) (bool, error) {
	if !e.canPostZcopy() {
		return false, uct.ErrNoResource
	}
	head := frameLen + len(hdr)
	b, err := e.reserve(head)
	if err != nil {
		return false, err
	}
	putHeader(b, frameAM, id, n)
	copy(b[frameLen:], hdr)
	return e.conn.postZcopy(e, b, iov, opAM, c) != nil, nil
}

// gather copies the data of iov to b.
func gather(b []byte, iov []uct.IOV) {
	for i := range iov {
		b = b[copy(b, iov[i].Buf):]
	}
}

// canPostZcopy reports whether there are an op and an extent for a zcopy operation.
func (e *endpoint) canPostZcopy() bool { return e.it.ops.left > 0 && e.conn.tx.hasExtentRoom() }

// postZcopy posts a request of e: frame, which reserve has returned, and the data of iov. It
// returns the op of the request; nil for an opAM that is completely written. The caller has checked
// canPostZcopy.
func (c *conn) postZcopy(e *endpoint, frame []byte, iov []uct.IOV, kind opKind, comp *uct.Completion) *op {
	q := &c.tx
	c.sent++
	if c == e.conn {
		e.sent = c.sent
	}
	q.posts++
	written := 0
	if q.streak < streamStreak {
		written = c.sendv(frame, iov)
		q.streak++
		if written == len(frame)+uct.IOVLen(iov) && kind == opAM {
			c.markDirty()
			return nil
		}
	}
	o := c.it.ops.get()
	o.ep, o.comp, o.kind, o.seq = e, comp, kind, c.sent
	o.fill(iov, max(written-len(frame), 0))
	if written < len(frame) {
		// sendv may have written or moved the queue: frame may be at another position now.
		copy(q.buf[q.tail:], frame[written:])
		q.tail += len(frame) - written
	}
	if o.left > 0 {
		q.addExtent(extent{op: o})
	}
	if written == 0 && !q.blocked && !q.mayCollect(&e.it.cfg) {
		q.streak++
		c.flush()
	}
	c.markDirty()
	return o
}

// covers reports whether the memory handles of iov belong to md and contain their buffers.
func (md *domain) covers(iov []uct.IOV) bool {
	for i := range iov {
		if iov[i].Mem == nil {
			continue
		}
		m, ok := iov[i].Mem.(*memory)
		if !ok || m == nil || m.md != md || !m.covers(iov[i].Buf) {
			return false
		}
	}
	return true
}
