package ucp

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// lateKey is an RKey for Study.KeyResolve = op. It takes the place of its lanes: at each operation it looks up the
// lane and the transport's form of the key, as UCX 1.0 did, and passes the operation on. Limits are those of the
// time when the key was bound.
type lateKey RKey

// bindLate puts the key in the place of the lanes that it is bound to.
func (k *RKey) bindLate() {
	late := (*lateKey)(k)
	if k.put != nil {
		k.put = late
	}
	if k.get != nil {
		k.get = late
	}
	if k.amo != nil {
		k.amo = late
	}
}

// find looks up the lane of a role and its form of the key. Both are there while the key is bound.
func (k *lateKey) find(p wireup.Role) (*lane, uct.RKey) {
	e := k.ep
	l := e.link.lanes.Use[p]
	return l, *k.packed.Known(l.Iface.domain, int(e.peer.Addr.Resources[l.Remote].MD))
}

// PutShort implements uct.Putter, as the following do.
func (k *lateKey) PutShort(buf []byte, raddr uint64, _ uct.RKey) error {
	l, key := k.find(wireup.RMA)
	return l.Put.PutShort(buf, raddr, key)
}

func (k *lateKey) PutBcopy(buf []byte, raddr uint64, _ uct.RKey) error {
	l, key := k.find(wireup.RMA)
	return l.Put.PutBcopy(buf, raddr, key)
}

func (k *lateKey) PutZcopy(iov []uct.IOV, raddr uint64, _ uct.RKey, c *uct.Completion) (bool, error) {
	l, key := k.find(wireup.RMA)
	return l.Put.PutZcopy(iov, raddr, key, c)
}

// GetShort implements uct.Getter, as the following do.
func (k *lateKey) GetShort(buf []byte, raddr uint64, _ uct.RKey) error {
	l, key := k.find(wireup.RMA)
	return l.Get.GetShort(buf, raddr, key)
}

func (k *lateKey) GetBcopy(buf []byte, raddr uint64, _ uct.RKey, c *uct.Completion) (bool, error) {
	l, key := k.find(wireup.RMA)
	return l.Get.GetBcopy(buf, raddr, key, c)
}

func (k *lateKey) GetZcopy(iov []uct.IOV, raddr uint64, _ uct.RKey, c *uct.Completion) (bool, error) {
	l, key := k.find(wireup.RMA)
	return l.Get.GetZcopy(iov, raddr, key, c)
}

// AtomicPost implements uct.Atomics, as the following do.
func (k *lateKey) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, _ uct.RKey) error {
	l, key := k.find(wireup.AMO)
	return l.AMO.AtomicPost(op, size, value, raddr, key)
}

func (k *lateKey) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, _ uct.RKey, c *uct.Completion) (bool, error) {
	l, key := k.find(wireup.AMO)
	return l.AMO.AtomicFetch(op, size, value, result, raddr, key, c)
}

func (k *lateKey) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, _ uct.RKey, c *uct.Completion) (bool, error) {
	l, key := k.find(wireup.AMO)
	return l.AMO.AtomicCSwap(size, compare, swap, result, raddr, key, c)
}
