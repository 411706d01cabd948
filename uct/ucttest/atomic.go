package ucttest

import (
	"encoding/binary"
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var atomicChecks = []check{
	{
		name: "atomic/operations",
		rule: "each operation of AtomicAttr changes the word as defined by AtomicOp.Apply, returns the old value, and touches nothing else",
		any:  uct.CapAtomic, run: checkAtomicOps,
	},
	{
		name: "atomic/unsupported",
		rule: "operations that are not in AtomicAttr are ErrUnsupported",
		any:  uct.CapAtomic, run: checkAtomicUnsupported,
	},
	{
		name: "atomic/senders",
		rule: "atomics of many senders are atomic: sums add up, and no two see the same old value",
		any:  uct.CapAtomic, run: checkAtomicSenders,
	},
	{
		name: "atomic/linearizable",
		rule: "the history of atomics on one word is linearizable",
		any:  uct.CapAtomic, run: checkLinearizable,
	},
}

// atomicCall is one atomic operation. The transport owns result until the operation completes.
type atomicCall struct {
	result uint64
	comp   *comp
	done   bool
}

// atomicVariant is one operation of 4 or 8 bytes, with or without result.
type atomicVariant struct {
	op    uct.AtomicOp
	size  int
	fetch bool
}

func (v *atomicVariant) name() string {
	kind := "post"
	if v.fetch {
		kind = "fetch"
	}
	return fmt.Sprintf("atomic %s %s%d", kind, v.op, 8*v.size)
}

func allAtomics() []atomicVariant {
	var all []atomicVariant
	for op := uct.AtomicAdd; op <= uct.AtomicCSwap; op++ {
		for _, size := range []int{4, 8} {
			all = append(all, atomicVariant{op, size, false}, atomicVariant{op, size, true})
		}
	}
	return all
}

// in reports whether the attributes list the operation.
func (v *atomicVariant) in(a *uct.AtomicAttr) bool {
	set := a.Post32
	switch {
	case v.size == 8 && v.fetch:
		set = a.Fetch64
	case v.size == 8:
		set = a.Post64
	case v.fetch:
		set = a.Fetch32
	}
	return set.Has(v.op)
}

func claimedAtomics(a *uct.IfaceAttr) []atomicVariant {
	var out []atomicVariant
	for _, v := range allAtomics() {
		if v.in(&a.Atomic) {
			out = append(out, v)
		}
	}
	return out
}

// post posts the operation once.
func (v *atomicVariant) post(p *pair, l *link, raddr uint64, key uct.RKey, compare, value uint64, call *atomicCall) error {
	if !v.fetch {
		call.done = true
		return l.Atomics.AtomicPost(v.op, v.size, value, raddr, key)
	}
	call.comp = p.comp(1)
	call.comp.onFire = func() { call.done = true }
	pending, err := v.call(l, raddr, key, compare, value, &call.result, &call.comp.Completion)
	if err != nil || !pending {
		call.comp.expect = 0
		call.done = err == nil
	}
	return err
}

// call calls the function of Atomics for a fetching operation.
func (v *atomicVariant) call(l *link, raddr uint64, key uct.RKey, compare, value uint64, result *uint64, c *uct.Completion) (bool, error) {
	if v.op == uct.AtomicCSwap {
		return l.Atomics.AtomicCSwap(v.size, compare, value, result, raddr, key, c)
	}
	return l.Atomics.AtomicFetch(v.op, v.size, value, result, raddr, key, c)
}

func word(b []byte, size int) uint64 {
	if size == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func setWord(b []byte, size int, x uint64) {
	if size == 4 {
		binary.NativeEndian.PutUint32(b, uint32(x))
		return
	}
	binary.NativeEndian.PutUint64(b, x)
}

func checkAtomicOps(t checkT, p *pair) {
	operands := []uint64{0, 1, 0x80000000, 0xffffffff, 1 << 63, ^uint64(0), 0x0123456789abcdef}
	for _, v := range claimedAtomics(p.A.Iface.Attr()) {
		for i, old := range operands {
			for _, value := range operands {
				for _, compare := range []uint64{old, old + 1} {
					if v.op != uct.AtomicCSwap && compare != old {
						continue
					}
					p.tryAtomic(t, &v, 64+v.size*i, old, compare, value)
				}
			}
		}
	}
}

// tryAtomic runs one operation on the word at off.
func (p *pair) tryAtomic(t checkT, v *atomicVariant, off int, old, compare, value uint64) {
	t.Helper()
	mem := p.B.Mem.Bytes()[:256]
	scribble(mem)
	setWord(mem[off:], v.size, old)
	call := &atomicCall{result: 0x5555555555555555}
	require.NoError(t, p.push(t, func() error {
		return v.post(p, p.AB, p.AB.Raddr+uint64(off), p.AB.Key, compare, value, call)
	}), v.name())
	p.until(t, v.name()+": no completion", func() bool { return call.done })
	p.flush(t, p.AB)
	assert.Equal(t, v.op.Apply(v.size, old, compare, value), word(mem[off:], v.size), "%s of %#x, %#x, %#x", v.name(), old, compare, value)
	if v.fetch {
		want := old
		if v.size == 4 {
			want &= 0xffffffff
		}
		assert.Equal(t, want, call.result, "%s: old value", v.name())
	}
	assert.True(t, untouched(mem[:off]) && untouched(mem[off+v.size:]), "%s touched a neighbour", v.name())
}

func checkAtomicUnsupported(t checkT, p *pair) {
	scribble(p.B.Mem.Bytes())
	a := p.A.Iface.Attr()
	for _, v := range allAtomics() {
		if v.in(&a.Atomic) {
			continue
		}
		call := &atomicCall{}
		err := v.post(p, p.AB, p.AB.Raddr, p.AB.Key, 0, 1, call)
		assert.ErrorIs(t, err, uct.ErrUnsupported, v.name())
	}
	_, err := p.AB.Atomics.AtomicFetch(uct.AtomicCSwap+1, 8, 1, &(&atomicCall{}).result, p.AB.Raddr, p.AB.Key, nil)
	assert.ErrorIs(t, err, uct.ErrUnsupported, "an operation that does not exist")
	p.settle()
	assert.True(t, untouched(p.B.Mem.Bytes()), "a refused atomic wrote")
}
