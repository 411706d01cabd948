package ucxpeer

import (
	"fmt"
	"slices"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/targetop"
)

// Mem is memory of this process that peers may read or write: a window. Its address for peers is random, has
// nothing to do with where the memory is, and is valid until Close.
type Mem struct {
	w      *Worker
	buf    []byte
	base   uint64
	access uct.Access
	closed bool
}

// windowBits is the size of the space of addresses in which windows are.
const windowBits = 47

// MemMap registers buf, which must not be empty, for access by the peers of all EPs. Any process that has the
// connection of an EP may use it: see the package, "Trusted networks only". ErrInvalidParam.
func (w *Worker) MemMap(buf []byte, access uct.Access) (*Mem, error) {
	if len(buf) == 0 || w.closed {
		return nil, &ucs.OpError{TL: "ucx", Op: "register memory", Err: ucs.ErrInvalidParam}
	}
	m := &Mem{w: w, buf: buf, access: access}
	for ok := false; !ok; {
		m.base = randomWord()>>(64-windowBits)&^(cacheLine-1) | lineOffset(buf)
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

// overlaps leaves a gap of a cache line between windows.
func (m *Mem) overlaps(o *Mem) bool {
	return m.base < o.base+uint64(len(o.buf))+cacheLine && o.base < m.base+uint64(len(m.buf))+cacheLine
}

// Bytes is the memory.
func (m *Mem) Bytes() []byte { return m.buf }

// Addr is the address of the first byte for peers.
func (m *Mem) Addr() uint64 { return m.base }

// Pack returns the remote key, which a program with UCX passes to ucp_ep_rkey_unpack. It is the same for all memory.
func (m *Mem) Pack() []byte {
	key := ucxwire.EmptyKey
	return ucxwire.AppendKey(nil, &key)
}

// Close deregisters the memory: no peer touches it from then on. An EP whose peer tries fails. Idempotent.
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

// heldArrival is a request of a peer that waits until its EP has sent replies.
type heldArrival struct {
	id uint8
	p  piece
}

// handleTarget returns the handler of requests of a type for memory of this process. They are held as long as too many
// replies wait, so that a peer that does the same here keeps reading.
func (w *Worker) handleTarget(id uint8) func(arrival) bool {
	return func(a arrival) bool {
		name := targetEP(id, a.data)
		if name == 0 {
			return false
		}
		e := w.epOf(a, name)
		if e == nil || e.remote == 0 {
			return w.late()
		}
		e.from = a.conn
		if len(e.control) < maxControl && len(e.held) == 0 {
			e.target(id, a.data)
			return true
		}
		e.held = append(e.held, heldArrival{id, w.hold(a, a.data)})
		return true
	}
}

// dropHeld releases the requests that were held.
func (e *EP) dropHeld() {
	for i := range e.held {
		e.held[i].p.release()
	}
	e.held = nil
}

// targetEP is the EP that a request names; 0 if it is malformed.
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

// resumeHeld executes requests that were held.
func (e *EP) resumeHeld() {
	for len(e.held) > 0 && len(e.control) < maxControl && e.state < epFailed {
		h := e.held[0]
		e.held = e.held[1:]
		e.target(h.id, h.p.data)
		h.p.release()
	}
}

// target executes a request of the peer, which is well formed. One that is outside of the windows, or that a
// window does not permit, fails the EP: UCX has no reply that refuses it.
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
		e.misbehaved(st, fmt.Sprintf("a request (%d) for memory that is not registered for it", id))
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
	off  int // of the next byte in mem
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

// postGetReply sends memory to the peer that asked for it, with copies: no peer has the memory when Mem.Close
// returns.
func (e *EP) postGetReply(g *getReply) error {
	for g.sent < g.n {
		if g.mem.closed {
			e.misbehaved(ucs.StatusRemoteAccess, "a request for memory that was deregistered while it was sent")
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
