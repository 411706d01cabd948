package ucp

import (
	"fmt"
	"math"

	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// RKey is a remote key, bound to one EP: to the lanes of its operations, to
// the transport's form of the key and to the limits that select the protocol. So an
// operation needs no lookup. While the EP has no lane, and while operations wait for a
// fence, the key is not bound and operations wait. It belongs to the goroutine that owns the worker.
type RKey struct {
	put      uct.Putter
	rma      uct.RKey
	ep       *EP    // nil after Close
	maxShort int    // maximum length of a put by PutShort; -1 while unbound
	offset   uint64 // address + offset is the offset in the region: the negated address of the region at the target
	size     uint64 // length of the region in bytes

	maxPut int // maximum length of a put by one PutBcopy; -1 while unbound
	maxGet int // maximum length of a get by one GetBcopy; -1 while unbound
	get    uct.Getter
	moves  *transfers // of the lane of put and get

	amo    uct.Atomics
	amoKey uct.RKey
	post   sized // atomics that one call of the transport executes
	fetch  sized

	packed     *region.Keys
	cacheEntry *peerKey // entry of peerKeys with this key; nil if the key is not cached
	next, prev *RKey    // in EP.keys
}

// keyClass is the class of operations with a key.
var keyClass = class{free: func(r *Request) { r.target.key = nil }}

// sized has atomics by the size of their word in bytes: 4 or 8; other elements are nil.
type sized [9]uct.AtomicOps

// Unpack binds a remote key, which may come from an untrusted peer, to the EP. packed is
// copied. The caller must close the key after its last operation is complete. Errors:
// ErrInvalidRKey; as [EP.Err] if the EP accepts no operations.
func (e *EP) Unpack(packed []byte) (*RKey, error) {
	if e.state != epOpen {
		return nil, e.Err()
	}
	k := &RKey{ep: e}
	k.unbind()
	var err error
	if k.packed, err = region.Unpack(packed); err != nil {
		return nil, err
	}
	k.offset, k.size = -k.packed.Addr, k.packed.Length
	if err = k.check(); err != nil {
		k.release()
		return nil, err
	}
	e.markUsed()
	k.next = e.keys
	if e.keys != nil {
		e.keys.prev = k
	}
	e.keys = k
	k.bind()
	return k, nil
}

// check returns an error if the key is not valid for the lanes of the EP, or those that it would connect.
func (k *RKey) check() (err error) {
	e := k.ep
	for _, role := range []wireup.Role{wireup.RMA, wireup.AMO} {
		if x := e.lane(role); x != nil {
			_, err = k.resolve(x.Iface.index, x.Remote)
		} else if best := e.peer.Best[role]; best.OK {
			_, err = k.resolve(best.Local, best.Remote)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the key for a pair of resources, unpacking it once.
func (k *RKey) resolve(local, remote int) (uct.RKey, error) {
	i := k.ep.w.ifaces[local]
	key, err := k.packed.For(i.domain, int(k.ep.peer.Addr.Resources[remote].MD))
	if err != nil {
		return key, &Error{Op: "unpack key", Peer: k.ep.peer.Addr.UUID(), Via: i.String(), Err: err}
	}
	return key, nil
}

// bind binds the key to the lanes of its EP. Operations without a lane remain unbound.
func (k *RKey) bind() {
	k.unbind()
	e := k.ep
	if e.fence.count > 0 || e.state != epOpen || e.w.stats.spans.measures() {
		return
	}
	if l := e.lane(wireup.RMA); l != nil && l.Connected {
		k.bindRMA(l)
	}
	if l := e.lane(wireup.AMO); l != nil && l.Connected {
		k.bindAMO(l)
	}
	if e.w.transfers.lateKeys {
		k.bindLate()
	}
}

// denies returns the reason for which the key does not permit access with right to n bytes at raddr;
// empty if it does.
func (k *RKey) denies(raddr uint64, n int, right uct.Access) string {
	switch {
	case !k.packed.Contains(raddr, uint64(n)):
		return fmt.Sprintf("at %#x, the key opens %d bytes at %#x", raddr, k.size, k.packed.Addr)
	case k.packed.Access&right == 0:
		return "the key does not give the right"
	}
	return ""
}

// opens reports whether n bytes at raddr are in the region. n must not exceed size. An address before the region
// wraps around to an offset beyond it.
func (k *RKey) opens(raddr, n uint64) bool { return raddr+k.offset <= k.size-n }

// bindAMO binds atomics to a lane, if the key permits them.
func (k *RKey) bindAMO(l *lane) {
	if l.AMO == nil || k.packed.Access&uct.AccessRemoteAtomic == 0 {
		return
	}
	key, err := k.resolve(l.Iface.index, l.Remote)
	if err != nil {
		return // the operation returns the error
	}
	k.amo, k.amoKey = l.AMO, key
	a := &l.Iface.attr.Atomic
	if k.size >= 4 {
		k.post[4], k.fetch[4] = a.Post32, a.Fetch32
	}
	if k.size >= 8 {
		k.post[8], k.fetch[8] = a.Post64, a.Fetch64
	}
}

// bindRMA binds put and get to a lane, as far as the key permits them.
func (k *RKey) bindRMA(l *lane) {
	key, err := k.resolve(l.Iface.index, l.Remote)
	if err != nil {
		return // the operation returns the error
	}
	t := l.Iface.transfers()
	if k.ep.sharesRMA() {
		t = l.Iface.shortTransfers()
	}
	whole := int(min(k.size, math.MaxInt))
	k.rma, k.moves = key, t
	if l.Put != nil && k.packed.Access&uct.AccessRemoteWrite != 0 {
		k.put, k.maxShort, k.maxPut = l.Put, min(t.shortPut, whole), min(t.copy, whole)
	}
	if l.Get != nil && k.packed.Access&uct.AccessRemoteRead != 0 {
		k.get, k.maxGet = l.Get, min(t.copyGet, whole)
	}
}

// unbind makes all operations use the slow path.
func (k *RKey) unbind() {
	k.put, k.get, k.amo, k.moves = nil, nil, nil, nil
	k.maxShort, k.maxPut, k.maxGet = -1, -1, -1
	k.post, k.fetch = sized{}, sized{}
}

// Len returns the length of the region of the key in bytes.
func (k *RKey) Len() uint64 { return k.packed.Length }

// Addr returns the address of the first byte of the region at the target.
func (k *RKey) Addr() uint64 { return k.packed.Addr }

// Close releases the key. Its operations must be complete; later ones return
// ErrInvalidRKey. The goroutine that owns the worker must call it; it does not block. A second call
// does nothing. The memory at the peer remains registered.
func (k *RKey) Close() {
	e := k.ep
	if e == nil {
		return
	}
	k.unbind()
	if k.prev == nil {
		e.keys = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.release()
}

func (k *RKey) release() {
	k.packed.Release()
	k.ep, k.next, k.prev = nil, nil, nil
}

// bindKeys binds the keys of the EP to its lanes.
func (e *EP) bindKeys() {
	for k := e.keys; k != nil; k = k.next {
		k.bind()
	}
}

func (e *EP) unbindKeys() {
	for k := e.keys; k != nil; k = k.next {
		k.unbind()
	}
}

// refusal returns the error of an operation on an EP that accepts none, or with a key of
// another EP; otherwise nil.
func (e *EP) refusal(a action, key *RKey) error {
	if err := e.refuses(a); err != nil {
		return err
	}
	switch {
	case key == nil:
		return e.wrong(a, uct.ErrInvalidRKey, "there is none")
	case key.ep != e:
		return e.wrong(a, uct.ErrInvalidRKey, "closed, or of another endpoint")
	}
	return nil
}
