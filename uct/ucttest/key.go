package ucttest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var keyChecks = []check{
	{
		name: "mem/alloc",
		rule: "Alloc returns zeroed memory, aligned to the page, of exactly n bytes; Close is idempotent",
		run:  checkAlloc,
	},
	{
		name: "mem/reg",
		rule: "Reg registers memory of the caller, not an empty buffer; peers reach it as they reach allocated memory",
		any:  uct.CapPut | uct.CapGet, run: checkReg,
	},
	{
		name: "key/round-trip",
		rule: "PackRKey appends RKeyLen bytes, which the peer's MD unpacks",
		any:  uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkKeyRoundTrip,
	},
	{
		name: "key/garbage",
		rule: "UnpackRKey checks bytes that come from a stranger: ErrInvalidRKey if they are malformed",
		any:  uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkKeyGarbage,
	},
}

func checkAlloc(t T, p *Pair) {
	alloc, ok := p.A.MD.(uct.Allocator)
	if !ok {
		t.Skipf("the md does not allocate")
	}
	for _, n := range []int{1, 8, 4095, 4096, 4097, 100000} {
		mem, err := alloc.Alloc(n, uct.AccessAll)
		require.NoError(t, err, "%d bytes", n)
		require.Len(t, mem.Bytes(), n)
		assert.Zero(t, mem.Addr()%4096, "%d bytes at %#x", n, mem.Addr())
		for i, x := range mem.Bytes() {
			require.Zero(t, x, "byte %d of %d", i, n)
		}
		scribble(mem.Bytes()) // the next one must be zeroed again
		assert.NoError(t, mem.Close())
		assert.NoError(t, mem.Close(), "close again")
	}
	for _, n := range []int{0, -1} {
		_, err := alloc.Alloc(n, uct.AccessAll)
		assert.Error(t, err, "%d bytes", n)
	}
}

func checkReg(t T, p *Pair) {
	reg, ok := p.B.MD.(uct.Registrar)
	if !ok {
		t.Skipf("the md registers nothing")
	}
	_, err := reg.Reg(nil, uct.AccessAll)
	assert.Error(t, err, "an empty buffer")
	buf := pattern(1, 10000)
	mem, err := reg.Reg(buf[3:9003], uct.AccessAll)
	require.NoError(t, err)
	p.mems = append(p.mems, mem)
	require.Len(t, mem.Bytes(), 9000)
	assert.Same(t, &buf[3], &mem.Bytes()[0])
	l := *p.AB
	l.Key, l.Raddr = p.unpack(t, p.A, mem), mem.Addr()
	for _, v := range claimedPut(p.A.Iface.Attr()) {
		data := pattern(7, v.clamp(100))
		p.put(t, &l, &v, 5, data)
		assert.Equal(t, data, buf[8:8+len(data)], "put %s", v.name)
	}
	for _, v := range claimedGet(p.A.Iface.Attr()) {
		n := v.clamp(100)
		assert.Equal(t, buf[8:8+n], p.get(t, &l, &v, 5, n), "get %s", v.name)
	}
	assert.Equal(t, pattern(1, 3), buf[:3])
}

func checkKeyRoundTrip(t T, p *Pair) {
	prefix := []byte("prefix")
	packed, err := p.B.Mem.PackRKey(prefix[:6:6])
	require.NoError(t, err)
	assert.Equal(t, "prefix", string(packed[:6]), "PackRKey appends")
	assert.Len(t, packed[6:], p.B.MD.Attr().RKeyLen)
	again, err := p.B.Mem.PackRKey(nil)
	require.NoError(t, err)
	assert.Equal(t, packed[6:], again, "a key does not change")
	u, ok := p.A.MD.(uct.RKeyUnpacker)
	require.Equal(t, p.A.MD.Attr().RKeyLen > 0, ok, "RKeyUnpacker iff RKeyLen > 0")
	if !ok {
		return
	}
	key, err := u.UnpackRKey(again)
	require.NoError(t, err)
	if key.Release != nil {
		key.Release()
	}
}

func checkKeyGarbage(t T, p *Pair) {
	u, ok := p.A.MD.(uct.RKeyUnpacker)
	if !ok {
		t.Skipf("memory needs no key")
	}
	packed, err := p.B.Mem.PackRKey(nil)
	require.NoError(t, err)
	for _, bad := range damaged(packed) {
		key, err := u.UnpackRKey(bad)
		if len(bad) == len(packed) { // a key of random bits may be well formed
			release(key, err)
			continue
		}
		assert.ErrorIs(t, err, uct.ErrInvalidRKey, "% x", bad)
		release(key, err)
	}
	for _, odd := range flipped(packed) {
		release(u.UnpackRKey(odd))
	}
}

func release(key uct.RKey, err error) {
	if err == nil && key.Release != nil {
		key.Release()
	}
}

// FuzzRKey feeds UnpackRKey with strange bytes. f is the fuzz target of the
// transport's own test.
func FuzzRKey(f *testing.F, h Harness) {
	md, err := h.OpenMD()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := md.Close(); err != nil {
			f.Error(err)
		}
	})
	u, ok := md.(uct.RKeyUnpacker)
	if !ok {
		f.Skip("memory needs no key")
	}
	if alloc, ok := md.(uct.Allocator); ok {
		mem, err := alloc.Alloc(4096, uct.AccessAll)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = mem.Close() })
		packed, err := mem.PackRKey(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := u.UnpackRKey(b)
		if err != nil {
			assert.ErrorIs(t, err, uct.ErrInvalidRKey)
		}
		release(key, err)
	})
}
