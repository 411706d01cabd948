package usock

import (
	"cmp"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

const (
	// window is the maximum number of operations of an endpoint in flight. That many operations of maximum length,
	// with the overhead of the kernel for each, fit into the buffer of a socket
	// (net.core.wmem_default, 208 KiB), and so do their replies.
	window    = 16
	headerLen = 24
	maxData   = 7 << 10 // bytes behind a header
)

// Types of messages on the wire.
const (
	// Operations: number is the id of the handler of an AM and the length of a get; put
	// and get have key and address; flush has nothing.
	kindAM, kindPut, kindGet, kindFlush = 1, 2, 3, 4
	// Replies: done has the data of a get; refused is the last message of the connection. Bye
	// is not a reply: the target's iface closes.
	kindDone, kindRefused, kindBye = 5, 6, 7
)

// message is a header and the data after it.
type message []byte

func (m message) kind() uint32   { return binary.LittleEndian.Uint32(m) }
func (m message) number() uint32 { return binary.LittleEndian.Uint32(m[4:]) }
func (m message) key() uct.RKey  { return uct.RKey(binary.LittleEndian.Uint64(m[8:])) }
func (m message) raddr() uint64  { return binary.LittleEndian.Uint64(m[16:]) }
func (m message) data() []byte   { return m[headerLen:] }

// conn is a connected socket.
type conn struct {
	i   *iface
	fd  int     // -1: closed
	out message // the next one, with room for the longest
}

func (i *iface) newConn(fd int) conn { return conn{i, fd, make(message, headerLen+maxData)} }

// send sends the message in out, which has n bytes of data.
func (c *conn) send(kind, number uint32, key uct.RKey, raddr uint64, n int) {
	binary.LittleEndian.PutUint32(c.out, kind)
	binary.LittleEndian.PutUint32(c.out[4:], number)
	binary.LittleEndian.PutUint64(c.out[8:], uint64(key))
	binary.LittleEndian.PutUint64(c.out[16:], raddr)
	if unix.Send(c.fd, c.out[:headerLen+n], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) != nil {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // messages that have arrived can be read; then the connection fails
	}
}

func (c *conn) close() {
	if c.fd >= 0 {
		c.i.conns[c.fd] = nil
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

// inbound is the target's end of a connection.
type inbound struct{ conn }

func (in *inbound) handleClose() { in.close() }

// handle executes an operation of a peer, and replies.
func (in *inbound) handle(m message) {
	n, ok := 0, true
	switch m.kind() {
	case kindAM:
		in.i.handlers.Handle(uint8(min(m.number(), uct.MaxAMID+1)), m.data(), nil)
	case kindPut:
		ok = in.i.d.Write(m.key(), m.raddr(), m.data())
	case kindGet:
		n = int(min(m.number(), maxData))
		ok = in.i.d.Read(m.key(), m.raddr(), in.out.data()[:n])
	}
	if ok {
		in.send(kindDone, 0, 0, 0, n)
	} else {
		in.send(kindRefused, 0, 0, 0, 0)
		in.close()
	}
}

// endpoint implements uct.EP and the classes of its Ops.
type endpoint struct {
	base.Slot
	base.NoAMZcopy
	base.NoPutShort
	base.NoPutZcopy
	base.NoGetShort
	base.NoGetZcopy
	conn
	pending    base.PendingQueue
	sent, done uint64         // numbers of operations that were posted, and that are complete
	ops        [window]flight // by the number of the operation
	refusal    error          // error of further posts; nil if the EP has not failed
}

// flight is an operation in flight.
type flight struct {
	comp *uct.Completion // may be nil
	get  []byte          // receives the data of the reply
}

func (i *iface) NewEP(p uct.EPParams) (uct.EP, error) {
	name, ok := parseAddr(p.IfaceAddr)
	if reachable, _ := i.Reachable(p.DeviceAddr, p.IfaceAddr); !ok || !reachable {
		return nil, fail("connect", uct.ErrInvalidAddr)
	}
	fd, err := newSocket()
	if err != nil {
		return nil, fail("connect", err)
	}
	e := &endpoint{conn: i.newConn(fd)}
	if err := cmp.Or(i.poll(fd, e), unix.Connect(fd, abstract(name))); err != nil {
		e.close()
		return nil, fail("connect", ucs.Join(uct.ErrUnreachable, err))
	}
	i.eps.Add(e)
	return e, nil
}

func (e *endpoint) Ops() *uct.Ops { return &uct.Ops{AM: e, Put: e, Get: e} }
func (e *endpoint) Fence() error  { return nil } // a connection preserves the order

func (e *endpoint) Close() error {
	if e.i.eps.Remove(e) {
		e.closeSocket(uct.ErrClosed, ucs.StatusCanceled)
	}
	return nil
}

// closeSocket closes the socket and completes the operations in flight.
func (e *endpoint) closeSocket(refusal error, st ucs.Status) {
	e.refusal = refusal
	e.close()
	for e.done < e.sent {
		e.finish(st)
	}
}

// finish completes the oldest operation in flight.
func (e *endpoint) finish(st ucs.Status) {
	c := e.ops[e.done%window].comp
	e.done++
	if c != nil {
		c.Complete(st)
	}
}

// fail fails the EP. Progress calls it.
func (e *endpoint) fail(st ucs.Status) {
	err := fail("use connection", st.Err())
	e.closeSocket(ucs.EPFailed(err), st)
	e.i.onError(e, err)
}

func (e *endpoint) handleClose() { e.fail(ucs.StatusConnReset) }

// handle handles a message of the target.
func (e *endpoint) handle(m message) {
	switch f := &e.ops[e.done%window]; {
	case m.kind() == kindRefused:
		e.fail(ucs.StatusRemoteAccess)
	case m.kind() == kindBye:
		e.fail(ucs.StatusPeerClosed)
	case e.done == e.sent || len(m.data()) != len(f.get):
		e.fail(ucs.StatusInternal)
	default:
		copy(f.get, m.data())
		e.finish(ucs.StatusOK)
	}
}

// check returns the error of an operation with n bytes of data that cannot be posted now.
func (e *endpoint) check(kind, number uint32, n int) error {
	switch {
	case kind == kindAM && number > uct.MaxAMID:
		return uct.ErrInvalidParam
	case n > maxData, kind == kindGet && number > maxData:
		return uct.ErrTooLong
	case e.refusal == nil && (e.sent-e.done == window || e.pending.Blocks()):
		return uct.ErrNoResource
	}
	return e.refusal
}

func (e *endpoint) AddPending(r *uct.PendingReq) error {
	if err := e.check(kindFlush, 0, 0); err != uct.ErrNoResource && r.Next == nil {
		return cmp.Or(err, uct.ErrBusy)
	}
	return e.i.arbiter.Add(&e.pending, r)
}

func (e *endpoint) PurgePending(f func(*uct.PendingReq)) { e.i.arbiter.Purge(&e.pending, f) }

// post sends an operation with n bytes of data, which are in out.
func (e *endpoint) post(kind, number uint32, key uct.RKey, raddr uint64, n int, f flight) error {
	if err := e.check(kind, number, n); err != nil {
		return err
	}
	e.ops[e.sent%window] = f
	e.sent++
	e.send(kind, number, key, raddr, n)
	return nil
}

func (e *endpoint) Flush(c *uct.Completion) (pending bool, err error) {
	if e.refusal != nil || e.done == e.sent || c == nil {
		return e.done < e.sent, e.refusal
	}
	err = e.post(kindFlush, 0, 0, 0, 0, flight{comp: c})
	return err == nil, err
}

func (e *endpoint) AMShort(id uint8, hdr uint64, payload []byte) error {
	binary.LittleEndian.PutUint64(e.out.data(), hdr)
	copy(e.out.data()[8:], payload)
	return e.post(kindAM, uint32(id), 0, 0, 8+len(payload), flight{})
}

func (e *endpoint) AMBcopy(id uint8, p uct.Packer) (n int, err error) {
	if err := e.check(kindAM, uint32(id), 0); err != nil {
		return 0, err
	}
	n = p.Pack(e.out.data())
	return n, e.post(kindAM, uint32(id), 0, 0, n, flight{})
}

func (e *endpoint) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	copy(e.out.data(), buf)
	return e.post(kindPut, 0, key, raddr, len(buf), flight{})
}

func (e *endpoint) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	err = e.post(kindGet, uint32(len(buf)), key, raddr, 0, flight{c, buf})
	return err == nil, err
}
