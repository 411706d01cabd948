package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// target returns the target of a request; false for an invalid key.
func (e *endpoint) target(raddr uint64, key uct.RKey) (target, bool) {
	k := e.it.md.keys.Find(uint64(key))
	if k == nil {
		return target{}, false
	}
	return target{addr: raddr, key: *k, tag: e.tag}, true
}

// PutShort implements uct.Putter.
func (e *endpoint) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > e.it.attr.Put.MaxShort {
		return uct.ErrTooLong
	}
	return e.putCopy(buf, raddr, key)
}

// PutBcopy implements uct.Putter.
func (e *endpoint) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > e.it.attr.Put.MaxBcopy {
		return uct.ErrTooLong
	}
	return e.putCopy(buf, raddr, key)
}

func (e *endpoint) putCopy(buf []byte, raddr uint64, key uct.RKey) error {
	b, err := e.reservePut(len(buf), 0, raddr, key)
	if err != nil || len(buf) == 0 {
		return err
	}
	copy(b[frameLen+targetLen:], buf)
	e.commit(frameLen + targetLen + len(buf))
	return nil
}

// reservePut reserves a PUT of n bytes and writes its header and target.
func (e *endpoint) reservePut(n int, flags uint8, raddr uint64, key uct.RKey) ([]byte, error) {
	t, ok := e.target(raddr, key)
	if !ok {
		return nil, ucs.ErrRemoteAccess
	}
	b, err := e.reserve(frameLen + targetLen + n)
	if err != nil {
		return nil, err
	}
	putHeader(b, framePut, flags, targetLen+n)
	putTarget(b[frameLen:], t)
	return b, nil
}

// PutZcopy implements uct.Putter. It completes when the peer has executed the put.
func (e *endpoint) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	n := uct.IOVLen(iov)
	if n > maxRMA || len(iov) > maxIOV {
		return false, uct.ErrTooLong
	}
	if !e.it.md.covers(iov) {
		return false, uct.ErrInvalidParam
	}
	if !e.canAwaitReply() || !e.canPostZcopy() {
		return false, e.postError()
	}
	if n == 0 {
		return false, e.ready()
	}
	if n >= e.it.stripeMin {
		if conns := e.stripeConns(); len(conns) > 1 {
			return e.putStriped(conns, iov, n, raddr, key, c)
		}
	}
	if n <= int(e.it.cfg.SendvThresh) {
		return e.putCopied(iov, n, raddr, key, c)
	}
	b, err := e.reservePut(0, putAck, raddr, key)
	if err != nil {
		return false, err
	}
	putHeader(b, framePut, putAck, targetLen+n)
	e.conn.awaitingReply.push(e.conn.postZcopy(e, b, iov, opPut, c))
	return true, nil
}

// putCopied is PutZcopy for small data, for which a copy is cheaper.
func (e *endpoint) putCopied(iov []uct.IOV, n int, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b, err := e.reservePut(n, putAck, raddr, key)
	if err != nil {
		return false, err
	}
	gather(b[frameLen+targetLen:], iov)
	e.commit(len(b))
	e.awaitReply(opPut, c)
	return true, nil
}

// canAwaitReply reports whether a request with a reply can be posted.
func (e *endpoint) canAwaitReply() bool {
	return e.it.ops.left > 0 && e.conn.awaitingReply.n < maxReplies
}

// awaitReply adds an op for the reply to the last request. The caller has checked canAwaitReply.
func (e *endpoint) awaitReply(kind opKind, c *uct.Completion) *op {
	o := e.it.ops.get()
	o.ep, o.comp, o.kind, o.seq = e, c, kind, e.conn.sent
	e.conn.awaitingReply.push(o)
	return o
}

// GetBcopy implements uct.Getter.
func (e *endpoint) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if len(buf) > e.it.attr.Get.MaxBcopy {
		return false, uct.ErrTooLong
	}
	if err := e.postGet(len(buf), raddr, key); err != nil || len(buf) == 0 {
		return false, err
	}
	o := e.awaitReply(opGet, c)
	o.size, o.left, o.count = len(buf), len(buf), 1
	o.pieces[0] = buf
	return true, nil
}

// GetZcopy implements uct.Getter.
func (e *endpoint) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	n := uct.IOVLen(iov)
	if n > maxRMA || len(iov) > maxIOV {
		return false, uct.ErrTooLong
	}
	if !e.it.md.covers(iov) {
		return false, uct.ErrInvalidParam
	}
	if err := e.postGet(n, raddr, key); err != nil || n == 0 {
		return false, err
	}
	o := e.awaitReply(opGet, c)
	o.size = n
	o.fill(iov, 0)
	return true, nil
}

// postGet posts a GET. A get of 0 bytes sends nothing.
func (e *endpoint) postGet(n int, raddr uint64, key uct.RKey) error {
	const whole = frameLen + getLen
	t, ok := e.target(raddr, key)
	if !ok {
		return ucs.ErrRemoteAccess
	}
	if !e.canAwaitReply() {
		return e.postError()
	}
	if n == 0 {
		return e.ready()
	}
	b, err := e.reserve(whole)
	if err != nil {
		return err
	}
	putHeader(b, frameGet, 0, getLen)
	putTarget(b[frameLen:], t)
	binary.LittleEndian.PutUint64(b[frameLen+offGetLen:], uint64(n))
	e.commit(whole)
	e.conn.lastGet = e.conn.sent
	return nil
}
