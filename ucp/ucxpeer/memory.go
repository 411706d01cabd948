package ucxpeer

import (
	"fmt"
	"slices"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/targetop"
)

// Mem is memory of this process that peers may access: a window. Its address for peers is random, does not depend
// on the virtual address, and is valid until Close.
type Mem struct {
	w      *Worker
	buf    []byte
	base   uint64
	access uct.Access
	closed bool
}

// windowBits is the number of bits of the addresses of windows.
const windowBits = 47

// MemMap registers buf, which must not be empty, for access by the peers of all EPs. Any process with a
// connection to an EP can access it: see the package, "Trusted networks only". ErrInvalidParam.
func (w *Worker) MemMap(buf []byte, access uct.Access) (*Mem, error) {
	if len(buf) == 0 || w.closed {
		return nil, &ucs.OpError{TL: "ucx", Op: "register memory", Err: ucs.ErrInvalidParam}
	}
	m := &Mem{w: w, buf: buf, access: access}
	for ok := false; !ok; {
		m.base = randomUint64()>>(64-windowBits)&^(cacheLine-1) | lineOffset(buf)
		ok = m.base >= cacheLine && !slices.ContainsFunc(w.windows, m.overlaps)
	}
	at, _ := slices.BinarySearchFunc(w.windows, m.base, compareBase)
	w.windows = slices.Insert(w.windows, at, m)
	return m, nil
}

// cacheLine is the alignment that the address of a window shares with that of its memory, in bytes.
const cacheLine = 64

func compareBase(m *Mem, base uint64) int {
	switch {
	case m.base < base:
		return -1
	case m.base > base:
		return 1
	}
	return 0
}

// overlaps reports whether there is no gap of a cache line between two windows.
func (m *Mem) overlaps(o *Mem) bool {
	return m.base < o.base+uint64(len(o.buf))+cacheLine && o.base < m.base+uint64(len(m.buf))+cacheLine
}

// Bytes returns the memory.
func (m *Mem) Bytes() []byte { return m.buf }

// Addr returns the address of the first byte for peers.
func (m *Mem) Addr() uint64 { return m.base }

// Pack returns the remote key, which a program with UCX passes to ucp_ep_rkey_unpack. All memory has the same key.
func (m *Mem) Pack() []byte {
	key := ucxwire.EmptyKey
	return ucxwire.AppendKey(nil, &key)
}

// Close deregisters the memory: no peer can access it after Close has returned. An EP whose peer tries it fails.
// Idempotent.
func (m *Mem) Close() error {
	if !m.closed {
		m.closed = true
		m.w.windows = slices.DeleteFunc(m.w.windows, func(o *Mem) bool { return o == m })
	}
	return nil
}

// window returns the window that has n bytes at addr and permits access, and the offset in it.
func (w *Worker) window(addr, n uint64, access uct.Access) (m *Mem, off int, ok bool) {
	at, found := slices.BinarySearchFunc(w.windows, addr, compareBase)
	if !found {
		at--
	}
	if at < 0 || n > uint64(len(w.windows[at].buf)) {
		return nil, 0, false
	}
	m = w.windows[at]
	off, ok = targetop.Offset(len(m.buf), m.base, addr, int(n))
	return m, off, ok && m.access&access == access
}

// delayedRequest is a request of a peer for memory that waits until its EP has sent replies.
type delayedRequest struct {
	id uint8
	p  piece
}

// handleTarget returns the handler of requests of a type for memory of this process. A request is delayed while too many
// replies are queued. The connection is still read, because the peer may do the same: otherwise both sides would wait.
func (w *Worker) handleTarget(id uint8) func(arrival) bool {
	return func(a arrival) bool {
		name := targetEP(id, a.data)
		if name == 0 {
			return false
		}
		e := w.epOf(a, name)
		if e == nil || e.remote == 0 {
			return w.countLate()
		}
		e.from = a.conn
		if len(e.control) < maxControl && len(e.delayed) == 0 {
			e.target(id, a.data)
			return true
		}
		e.delayed = append(e.delayed, delayedRequest{id, w.buffer(a, a.data)})
		return true
	}
}

// dropDelayed releases the delayed requests.
func (e *EP) dropDelayed() {
	for i := range e.delayed {
		e.delayed[i].p.release()
	}
	e.delayed = nil
}

// targetEP returns the EP id in a request; 0 if the request is malformed.
func targetEP(id uint8, b []byte) uint64 {
	switch id {
	case ucxwire.IDPut:
		if m, ok := ucxwire.DecodePut(b); ok {
			return m.EP
		}
	case ucxwire.IDGetRequest:
		if m, ok := ucxwire.DecodeGetRequest(b); ok {
			return m.EP
		}
	case ucxwire.IDAtomic:
		if m, ok := ucxwire.DecodeAtomic(b); ok {
			return m.EP
		}
	}
	return 0
}

// executeDelayed executes delayed requests.
func (e *EP) executeDelayed() {
	for len(e.delayed) > 0 && len(e.control) < maxControl && e.state < epFailed {
		h := e.delayed[0]
		e.delayed = e.delayed[1:]
		e.target(h.id, h.p.data)
		h.p.release()
	}
}

// target executes a well-formed request of the peer. A request for memory outside of the windows, or without the access
// right, fails the EP, because UCX has no reply for a rejection.
func (e *EP) target(id uint8, b []byte) {
	st := ucs.StatusOK
	switch id {
	case ucxwire.IDPut:
		m, _ := ucxwire.DecodePut(b)
		st = e.targetPut(&m)
	case ucxwire.IDGetRequest:
		m, _ := ucxwire.DecodeGetRequest(b)
		st = e.targetGet(&m)
	case ucxwire.IDAtomic:
		m, _ := ucxwire.DecodeAtomic(b)
		st = e.targetAtomic(&m)
	}
	if st != ucs.StatusOK {
		e.failForViolation(st, fmt.Sprintf("a request (%d) for memory that is not registered for it", id))
	}
}

func (e *EP) targetPut(m *ucxwire.Put) ucs.Status {
	win, off, ok := e.w.window(m.Addr, uint64(len(m.Data)), uct.AccessRemoteWrite)
	if !ok || m.Memory != ucxwire.HostMemory {
		return ucs.StatusRemoteAccess
	}
	copy(win.buf[off:], m.Data)
	e.reply(ucxwire.IDCompletion, ucxwire.AppendCompletion(nil, e.remote))
	return ucs.StatusOK
}

func (e *EP) targetAtomic(m *ucxwire.Atomic) ucs.Status {
	win, _, ok := e.w.window(m.Addr, uint64(m.Size), uct.AccessRemoteAtomic)
	if !ok {
		return ucs.StatusRemoteAccess
	}
	a := targetop.Atomic{Op: uct.AtomicOp(m.Op), Size: m.Size, Raddr: m.Addr, Value: m.Value, Compare: m.Compare}
	old, st := a.Do(win.buf, win.base)
	switch {
	case st != ucs.StatusOK:
		return st
	case m.Req == 0:
		e.reply(ucxwire.IDCompletion, ucxwire.AppendCompletion(nil, e.remote))
	default:
		e.reply(ucxwire.IDAtomicReply, ucxwire.AppendAtomicReply(nil, ucxwire.AtomicReply{Req: m.Req, Size: m.Size, Value: old}))
	}
	return ucs.StatusOK
}

// getReply is memory that a peer reads.
type getReply struct {
	req  uint64
	mem  *Mem
	off  int // offset of the next byte in mem
	sent int
	n    int
}

func (e *EP) targetGet(m *ucxwire.GetRequest) ucs.Status {
	win, off, ok := e.w.window(m.Addr, m.Size, uct.AccessRemoteRead)
	if !ok || m.Memory != ucxwire.HostMemory || m.Size == 0 || m.Req == 0 {
		return ucs.StatusRemoteAccess
	}
	e.control = append(e.control, control{get: &getReply{req: m.Req, mem: win, off: off, n: int(m.Size)}})
	e.sendQueued()
	return ucs.StatusOK
}

// postGetReply sends memory to the peer. It copies the memory, so that no send uses it when Mem.Close has
// returned.
func (e *EP) postGetReply(g *getReply) error {
	for g.sent < g.n {
		if g.mem.closed {
			e.failForViolation(ucs.StatusRemoteAccess, "a request for memory that was deregistered while it was sent")
			return nil
		}
		p := e.packet()
		p.n0 = len(ucxwire.AppendFragment(p.head[:0], ucxwire.Fragment{Name: g.req, Offset: uint64(g.sent)}))
		n := min(g.n-g.sent, e.w.attr.AM.MaxBcopy-p.n0)
		p.tail = g.mem.buf[g.off : g.off+n]
		if err := e.send(ucxwire.IDGetReply); err != nil {
			return err
		}
		g.off += n
		g.sent += n
	}
	return nil
}
