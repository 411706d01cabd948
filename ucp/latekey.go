package ucp

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// lateKey is an RKey for Study.KeyResolve = op. It replaces the lanes in the key: for each operation it looks up the lane and
// the transport key, as UCX 1.0 did, and then calls the lane. It does not update the limits of the key, which bind has set.
type lateKey RKey

// bindLate replaces the lanes to which the key is bound by the key itself.
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

// find looks up the lane of a role and the transport key for the lane. It finds both while the key is bound.
func (k *lateKey) find(p wireup.Role) (*lane, uct.RKey) {
	e := k.ep
	l := e.link.lanes.Use[p]
	return l, *k.packed.Known(l.Iface.domain, int(e.peer.Addr.Resources[l.Remote].MD))
}

// PutShort and the next two methods implement uct.Putter.
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

// GetShort and the next two methods implement uct.Getter.
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

// AtomicPost and the next two methods implement uct.Atomics.
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
