package ucxpeer

import (
	"fmt"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// RKey is a remote key from UCX's ucp_rkey_pack. The key does not identify the memory, and UCX does not
// check addresses: a put to a wrong address writes any memory of the peer.
type RKey struct{ key ucxwire.Key }

// Unpack decodes a remote key. ErrInvalidRKey if it is malformed, ErrUnsupported if it is not for host memory.
func (e *EP) Unpack(packed []byte) (*RKey, error) {
	k, err := ucxwire.DecodeKey(packed)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ucs.ErrInvalidRKey, err)
	case k.Memory != ucxwire.HostMemory:
		err = fmt.Errorf("%w: memory of type %d", ucs.ErrUnsupported, k.Memory)
	default:
		return &RKey{k}, nil
	}
	return nil, &ucs.OpError{TL: "ucx", Op: "unpack remote key", Err: err}
}

// remoteOp is the state of an operation on the peer's memory, or of a message in fragments.
type remoteOp struct {
	msgID   uint64 // id of a message in fragments
	peerReq uint64 // the receiver's id of a rendezvous
	result  *uint64
	atomic  ucxwire.Atomic
}

// Put writes buf to memory of the peer. It completes when buf may be reused; Flush completes when the memory has
// changed.
func (e *EP) Put(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if err := checkKey(&opPut, key); err != nil || len(buf) == 0 {
		return nil, err
	}
	r := e.w.request(&opPut, p.onDone())
	r.buf, r.arg = data.Bytes(buf), raddr
	return e.start(r)
}

// Get reads memory of the peer into buf. The caller must not use buf until the operation has completed.
func (e *EP) Get(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if err := checkKey(&opGet, key); err != nil || len(buf) == 0 {
		return nil, err
	}
	r := e.w.request(&opGet, p.onDone())
	r.buf, r.arg = data.Bytes(buf), raddr
	return e.start(r)
}

// AtomicPost applies an operation to 4 or 8 bytes (size) of the peer's memory, without a result. raddr must be a
// multiple of size. uct.AtomicCSwap always has a result: use AtomicCSwap.
func (e *EP) AtomicPost(o uct.AtomicOp, size int, value, raddr uint64, key *RKey) (*Request, error) {
	if o == uct.AtomicCSwap {
		return nil, &ucs.OpError{TL: "ucx", Op: opAtomic.name, Err: ucs.ErrInvalidParam}
	}
	return e.atomic(ucxwire.Atomic{Op: uint8(o), Size: size, Value: value, Addr: raddr}, nil, key)
}

// AtomicFetch is AtomicPost with a result: it stores the old value in *result before the request completes. For
// compare-and-swap use AtomicCSwap.
func (e *EP) AtomicFetch(o uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key *RKey) (*Request, error) {
	if o == uct.AtomicCSwap || result == nil {
		return nil, &ucs.OpError{TL: "ucx", Op: opAtomic.name, Err: ucs.ErrInvalidParam}
	}
	return e.atomic(ucxwire.Atomic{Op: uint8(o), Size: size, Value: value, Addr: raddr}, result, key)
}

// AtomicCSwap stores swap in the peer's memory if the old value equals compare. In both cases it stores the old value in
// *result.
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key *RKey) (*Request, error) {
	if result == nil {
		return nil, &ucs.OpError{TL: "ucx", Op: opAtomic.name, Err: ucs.ErrInvalidParam}
	}
	return e.atomic(ucxwire.Atomic{Op: ucxwire.OpCSwap, Size: size, Value: swap, Compare: compare, Addr: raddr}, result, key)
}

func (e *EP) atomic(a ucxwire.Atomic, result *uint64, key *RKey) (*Request, error) {
	if err := checkKey(&opAtomic, key); err != nil {
		return nil, err
	}
	// A UCX process would abort on anything else.
	if a.Size != 4 && a.Size != 8 || a.Addr%uint64(a.Size) != 0 || a.Op > ucxwire.OpCSwap {
		return nil, &ucs.OpError{TL: "ucx", Op: opAtomic.name, Err: ucs.ErrInvalidParam}
	}
	r := e.w.request(&opAtomic, nil)
	r.remote.atomic, r.remote.result = a, result
	return e.start(r)
}

func checkKey(o *op, key *RKey) error {
	if key == nil {
		return &ucs.OpError{TL: "ucx", Op: o.name, Err: ucs.ErrInvalidRKey}
	}
	return nil
}

var (
	opPut    = op{name: "put", remote: true}
	opGet    = op{name: "get", remote: true}
	opAtomic = op{name: "atomic", remote: true}
)

func init() { opPut.post, opGet.post, opAtomic.post = postPut, postGet, postAtomic }

func postPut(r *Request) error {
	e := r.ep
	for r.off < r.buf.Len() {
		var head [ucxwire.PutLen]byte
		ucxwire.AppendPut(head[:0], ucxwire.Put{Addr: r.arg + uint64(r.off), EP: e.remote, Memory: ucxwire.HostMemory})
		n, err := r.zcopy(ucxwire.IDPut, head[:], r.w.attr.AM.MaxZcopy, nil)
		if err != nil {
			return err
		}
		if r.off += n; n == 0 {
			p := e.packet()
			p.n0 = copy(p.head[:], head[:])
			if err := r.sendPiece(ucxwire.IDPut, p); err != nil {
				return err
			}
		}
		e.issued++
	}
	return nil
}

func postGet(r *Request) error {
	p := r.ep.packet()
	p.n0 = len(ucxwire.AppendGetRequest(p.head[:0], &ucxwire.GetRequest{
		Addr: r.arg, Size: uint64(r.buf.Len()), EP: r.ep.remote, Req: r.wireID(), Memory: ucxwire.HostMemory}))
	if err := r.ep.send(ucxwire.IDGetRequest); err != nil {
		return err
	}
	r.waits = true
	r.ep.issued++
	return nil
}

func (w *Worker) handleGetReply(a arrival) bool {
	f, ok := ucxwire.DecodeFragment(a.data)
	if !ok {
		return false
	}
	r := w.requestOf(a, f.Name)
	if r == nil || r.op != &opGet || !r.waits {
		return w.countLate()
	}
	if f.Offset != uint64(r.off) || len(f.Data) == 0 || len(f.Data) > r.buf.Len()-r.off {
		r.ep.failForViolation(ucs.StatusRemoteInvalid, "an unexpected fragment of a get")
		return true
	}
	n, _ := r.buf.Unpack(r.off, f.Data) // it fits
	if r.off += n; r.off < r.buf.Len() {
		return true
	}
	r.waits = false
	r.endIfDone()
	r.ep.remoteCompleted()
	return true
}

func postAtomic(r *Request) error {
	m := &r.remote.atomic
	m.EP = r.ep.remote
	if r.remote.result != nil {
		m.Req = r.wireID()
	}
	p := r.ep.packet()
	p.n0 = len(ucxwire.AppendAtomic(p.head[:0], m))
	if err := r.ep.send(ucxwire.IDAtomic); err != nil {
		return err
	}
	r.waits = r.remote.result != nil
	r.ep.issued++
	return nil
}

func (w *Worker) handleAtomicReply(a arrival) bool {
	m, ok := ucxwire.DecodeAtomicReply(a.data)
	if !ok {
		return false
	}
	r := w.requestOf(a, m.Req)
	if r == nil || r.op != &opAtomic || !r.waits || m.Size != r.remote.atomic.Size {
		return w.countLate()
	}
	*r.remote.result = m.Value
	r.waits = false
	r.endIfDone()
	r.ep.remoteCompleted()
	return true
}

func (w *Worker) handleCompletion(a arrival) bool {
	id, ok := ucxwire.DecodeCompletion(a.data)
	if !ok {
		return false
	}
	e := w.epOf(a, id)
	if e == nil {
		return w.countLate()
	}
	e.remoteCompleted()
	return true
}
