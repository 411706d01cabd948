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
		rule: "Reg registers memory of the caller, but no empty buffer; peers access it like allocated memory",
		any:  uct.CapPut | uct.CapGet, run: checkReg,
	},
	{
		name: "key/round-trip",
		rule: "PackRKey appends RKeyLen bytes, which the peer's MD unpacks",
		any:  uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkKeyRoundTrip,
	},
	{
		name: "key/garbage",
		rule: "UnpackRKey checks bytes that come from an untrusted peer: ErrInvalidRKey if they are malformed",
		any:  uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkKeyGarbage,
	},
	{
		name: "key/release",
		rule: "ReleaseRKey releases the result of one UnpackRKey: other results for the same key, and keys unpacked later, remain valid",
		any:  uct.CapPut | uct.CapGet, run: checkKeyRelease,
	},
}

func checkAlloc(t checkT, p *pair) {
	alloc := p.A.MD.Ext().Alloc
	if alloc == nil {
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
		scribble(mem.Bytes()) // the next allocation must be zeroed again
		assert.NoError(t, mem.Close())
		assert.NoError(t, mem.Close(), "close again")
	}
	for _, n := range []int{0, -1} {
		_, err := alloc.Alloc(n, uct.AccessAll)
		assert.Error(t, err, "%d bytes", n)
	}
}

func checkReg(t checkT, p *pair) {
	reg := p.B.MD.Ext().Reg
	if reg == nil {
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

func checkKeyRoundTrip(t checkT, p *pair) {
	prefix := []byte("prefix")
	packed, err := p.B.Mem.PackRKey(prefix[:6:6])
	require.NoError(t, err)
	assert.Equal(t, "prefix", string(packed[:6]), "PackRKey appends")
	assert.Len(t, packed[6:], p.B.MD.Attr().RKeyLen)
	again, err := p.B.Mem.PackRKey(nil)
	require.NoError(t, err)
	assert.Equal(t, packed[6:], again, "a key does not change")
	u := p.A.MD.Ext().Keys
	if u == nil {
		return
	}
	key, err := u.UnpackRKey(again)
	require.NoError(t, err)
	u.ReleaseRKey(key)
}

func checkKeyRelease(t checkT, p *pair) {
	u := p.A.MD.Ext().Keys
	if u == nil {
		t.Skipf("memory needs no key")
	}
	a, l := p.A.Iface.Attr(), *p.AB
	first, second := p.memory(t, p.B, 4096, uct.AccessAll), p.memory(t, p.B, 4096, uct.AccessAll)
	reaches := func(what string, mem uct.Mem, key uct.RKey) {
		l.Key, l.Raddr = key, mem.Addr()
		for _, v := range claimedPut(a) {
			data := pattern(3, v.clamp(16))
			scribble(mem.Bytes())
			p.put(t, &l, &v, 8, data)
			assert.Equal(t, data, mem.Bytes()[8:8+len(data)], "%s: put %s", what, v.name)
		}
		for _, v := range claimedGet(a) {
			n := v.clamp(16)
			copy(mem.Bytes()[8:], pattern(4, n))
			assert.Equal(t, pattern(4, n), p.get(t, &l, &v, 8, n), "%s: get %s", what, v.name)
		}
	}
	for range 3 {
		kept := p.unpack(t, p.A, first)
		packed, err := first.PackRKey(nil)
		require.NoError(t, err)
		gone, err := u.UnpackRKey(packed)
		require.NoError(t, err)
		reaches("unpacked twice", first, gone)
		u.ReleaseRKey(gone)
		reaches("the same key was released", first, kept)
		reaches("after a release", second, p.unpack(t, p.A, second))
		reaches("after another key was unpacked", first, kept)
	}
}

func checkKeyGarbage(t checkT, p *pair) {
	u := p.A.MD.Ext().Keys
	if u == nil {
		t.Skipf("memory needs no key")
	}
	packed, err := p.B.Mem.PackRKey(nil)
	require.NoError(t, err)
	for _, bad := range damaged(packed) {
		if err := take(u, bad); len(bad) != len(packed) { // random bytes of the right length may be a valid key
			assert.ErrorIs(t, err, uct.ErrInvalidRKey, "% x", bad)
		}
	}
	for _, odd := range flipped(packed) {
		_ = take(u, odd)
	}
}

// take unpacks bytes and releases the key if that succeeds.
func take(u uct.RKeyUnpacker, b []byte) error {
	key, err := u.UnpackRKey(b)
	if err == nil {
		u.ReleaseRKey(key)
	}
	return err
}

// FuzzRKey calls UnpackRKey with fuzzed bytes. f is the fuzz target of the transport's test.
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
	u := md.Ext().Keys
	if u == nil {
		f.Skip("memory needs no key")
	}
	if alloc := md.Ext().Alloc; alloc != nil {
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
		if err := take(u, b); err != nil {
			assert.ErrorIs(t, err, uct.ErrInvalidRKey)
		}
	})
}
