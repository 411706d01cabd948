package memtp

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// EP is a connection to an iface of the same world.
type EP struct {
	base.Slot
	iface   *Iface
	id      uint64
	conn    bool   // connects to an EP, not to an iface
	peer    *Iface // nil before Connect; under world.mu
	peerEP  uint64 // id of the peer's EP; under world.mu
	tx      tx
	conns   [queueConns]queueConn
	pending base.PendingQueue
	failure ucs.Status
	refusal error // error of posts after the failure
	words   uct.NotifyHandler
	closed  bool
}

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops {
	ops := &uct.Ops{AM: e, Check: e, Queues: e}
	if !e.iface.conf.AMOnly {
		ops.Put, ops.Get, ops.Atomics, ops.Mapped, ops.Map = e, e, e, e, e
	}
	if e.conn {
		ops.Connect = e
	}
	if e.conn && !e.iface.conf.AMOnly {
		ops.Notify = e
	}
	return ops
}

// NewEP implements uct.Iface.
func (i *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	e := &EP{iface: i, conn: i.conf.ConnectEP}
	if e.conn != (p.DeviceAddr == nil && p.IfaceAddr == nil) {
		return nil, i.md.fail("new ep", uct.ErrInvalidParam)
	}
	if !e.conn {
		peer, err := i.lookup(p.DeviceAddr, p.IfaceAddr)
		if err != nil {
			return nil, err
		}
		e.peer = peer
	}
	e.tx.init(i.conf.TxDepth)
	e.initConns()
	i.world.mu.Lock()
	e.id = i.world.newID()
	i.world.eps[e.id] = e
	i.world.mu.Unlock()
	i.eps.Add(e)
	return e, nil
}

// EPAddr implements uct.EPConnector.
func (e *EP) EPAddr(b []byte) []byte { return appendID(b, kindEP, e.id) }

// Connect implements uct.EPConnector.
func (e *EP) Connect(deviceAddr, epAddr []byte) error {
	device, ok1 := parseID(deviceAddr, kindDevice)
	id, ok2 := parseID(epAddr, kindEP)
	if !ok1 || !ok2 {
		return e.iface.md.fail("connect", uct.ErrInvalidAddr)
	}
	w := e.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	peerEP := w.eps[id]
	switch {
	case peerEP == nil || peerEP.iface.md.id != device:
		return e.iface.md.fail(fmt.Sprintf("connect to ep %d", id), uct.ErrUnreachable)
	case e.peer != nil:
		return e.iface.md.fail("connect", uct.ErrInvalidParam)
	}
	e.peer, e.peerEP = peerEP.iface, id
	return nil
}

// connected reports whether the other side is connected to this one.
func (e *EP) connected() bool {
	peerEP := e.iface.world.eps[e.peerEP]
	return peerEP != nil && peerEP.peerEP == e.id
}

// watches reports whether the EP detects the death of its peer.
func (e *EP) watches() bool { return e.peer != nil }

// peerStatus returns StatusConnReset if the peer has died, StatusPeerClosed if it was closed and an operation is posted,
// and StatusOK otherwise. The caller holds world.mu.
func (e *EP) peerStatus() ucs.Status {
	switch {
	case e.peer == nil, e.failure != ucs.StatusOK:
		return ucs.StatusOK
	case e.peer.md.dead:
		return ucs.StatusConnReset
	}
	gone := e.iface.world.ifaces[e.peer.id] == nil || e.conn && e.iface.world.eps[e.peerEP] == nil
	if gone && (e.tx.n > 0 || e.sending()) {
		return ucs.StatusPeerClosed
	}
	return ucs.StatusOK
}

// free returns the error of a post in the current state of the EP, or nil.
func (e *EP) free() error {
	switch {
	case e.failure != ucs.StatusOK:
		return e.refusal
	case e.closed:
		return uct.ErrClosed
	case e.pending.Blocks() || e.tx.full():
		return uct.ErrNoResource
	}
	return nil
}

// AddPending implements uct.EP. It also queues a request while operations are outstanding, because GetShort needs an
// empty ring.
func (e *EP) AddPending(r *uct.PendingReq) error {
	switch {
	case e.failure != ucs.StatusOK:
		return e.refusal
	case r.Next != nil:
		return uct.ErrInvalidParam
	case e.tx.n == 0 && e.pending.Empty():
		return uct.ErrBusy
	}
	return e.iface.arbiter.Add(&e.pending, r)
}

// PurgePending implements uct.EP.
func (e *EP) PurgePending(f func(*uct.PendingReq)) { e.iface.arbiter.Purge(&e.pending, f) }

// Fence implements uct.EP. Operations are executed in order.
func (e *EP) Fence() error { return nil }

// Flush implements uct.EP.
func (e *EP) Flush(c *uct.Completion) (pending bool, err error) {
	switch {
	case e.failure != ucs.StatusOK:
		return false, e.refusal
	case e.tx.n == 0:
		return false, nil
	case c == nil:
		return true, nil
	case e.tx.full():
		return false, uct.ErrNoResource
	}
	e.tx.push(opFlush, c)
	return true, nil
}

// Check implements uct.Checker with a put of 0 bytes.
func (e *EP) Check(c *uct.Completion) (pending bool, err error) {
	if err := e.free(); err != nil {
		return false, err
	}
	e.tx.push(opPut, c).n = 0
	return true, nil
}

// Close implements uct.EP.
func (e *EP) Close() error {
	if e.closed {
		return nil
	}
	e.closed, e.words = true, nil
	for e.tx.n > 0 {
		if c := e.tx.pop(); c != nil {
			c.Complete(ucs.StatusCanceled)
		}
	}
	e.completeSends(ucs.StatusCanceled)
	e.iface.eps.Remove(e)
	w := e.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.eps, e.id)
	return nil
}

// AMShort implements uct.AMSender.
func (e *EP) AMShort(id uint8, hdr uint64, payload []byte) error {
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	if 8+len(payload) > maxShort {
		return uct.ErrTooLong
	}
	if err := e.free(); err != nil {
		return err
	}
	o := e.tx.push(opAM, nil)
	o.id = id
	binary.LittleEndian.PutUint64(o.buf, hdr)
	o.n = 8 + copy(o.buf[8:], payload)
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *EP) AMBcopy(id uint8, p uct.Packer) (n int, err error) {
	if id > uct.MaxAMID {
		return 0, uct.ErrInvalidParam
	}
	if err := e.free(); err != nil {
		return 0, err
	}
	o := e.tx.push(opAM, nil)
	o.id = id
	o.n = p.Pack(o.buf)
	return o.n, nil
}

// AMZcopy implements uct.AMSender.
func (e *EP) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (pending bool, err error) {
	if id > uct.MaxAMID {
		return false, uct.ErrInvalidParam
	}
	if len(hdr) > maxHeader || len(hdr)+uct.IOVLen(iov) > maxAM {
		return false, uct.ErrTooLong
	}
	if err := e.usable(iov, 0); err != nil {
		return false, err
	}
	o := e.tx.push(opAM, c)
	o.id, o.n = id, copy(o.buf, hdr)
	o.setIOV(iov)
	return true, nil
}

// usable checks an iov for zcopy, and that the ring is not full.
func (e *EP) usable(iov []uct.IOV, need uct.Access) error {
	if len(iov) > maxIOV {
		return uct.ErrTooLong
	}
	if !covered(iov, need) {
		return uct.ErrInvalidParam
	}
	return e.free()
}

// covered reports whether each buffer is in its Mem, and the Mem has the access rights.
func covered(iov []uct.IOV, need uct.Access) bool {
	for _, v := range iov {
		r, ok := v.Mem.(*region)
		if !ok && len(v.Buf) == 0 {
			continue
		}
		if !ok || !r.covers(v.Buf) || r.access&need != need {
			return false
		}
	}
	return true
}
