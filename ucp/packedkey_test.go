package ucp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

func sampleKey() *packedKey {
	return &packedKey{
		region: 7, addr: 0x1000, length: 64, access: uct.AccessAll,
		parts: []keyPart{{md: 0, key: []byte("ib")}, {md: 3, key: []byte{}}},
	}
}

func TestPackedKey_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &packedKey{
			region: rapid.Uint64().Draw(t, "region"),
			addr:   rapid.Uint64Max(1<<62).Draw(t, "addr"),
			length: rapid.Uint64Range(1, 1<<40).Draw(t, "length"),
			access: uct.Access(rapid.IntRange(0, int(uct.AccessAll)).Draw(t, "access")),
		}
		for md := range rapid.IntRange(0, 32).Draw(t, "parts") {
			k.parts = append(k.parts, keyPart{uint8(md), append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, "key")...)})
		}
		got, err := unpackKey(k.append(nil))
		require.NoError(t, err)
		assert.Equal(t, k, got)
	})
}

func TestUnpackKey_Refuses(t *testing.T) {
	good := sampleKey().append(nil)
	edit := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for _, tc := range []struct {
		name string
		in   []byte
	}{
		{"nothing", nil},
		{"a short header", good[:keyHeader-1]},
		{"another magic", edit(0, 0)},
		{"another version", edit(1, 9)},
		{"unknown rights", edit(2, 0xff)},
		{"too many parts", edit(3, 0xff)},
		{"a part too many", edit(3, 3)},
		{"a part too few", edit(3, 1)},
		{"no bytes", edit(20, 0)},
		{"past the end of memory", edit(27, 0xff)},
		{"a domain twice", edit(keyHeader+4, 0)},
		{"a domain over the limit", edit(keyHeader, 200)},
		{"a long part", edit(keyHeader+1, 0xff)},
		{"a byte too many", append(bytes.Clone(good), 0)},
		{"too long", make([]byte, maxKeyLen+1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "past the end of memory" {
				for i := 12; i < 20; i++ {
					tc.in[i] = 0xff
				}
			}
			_, err := unpackKey(tc.in)
			assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
		})
	}
}

func TestPackedKey_Holds(t *testing.T) {
	k := sampleKey()
	for _, tc := range []struct {
		addr, n uint64
		want    bool
	}{
		{0x1000, 64, true}, {0x1000, 65, false}, {0xfff, 1, false}, {0x103f, 1, true},
		{0x1040, 0, true}, {0x1040, 1, false}, {0x1041, 0, false}, {0x1000, ^uint64(0), false},
		{^uint64(0), 2, false},
	} {
		assert.Equal(t, tc.want, k.holds(tc.addr, tc.n), "%#x+%d", tc.addr, tc.n)
	}
}

func TestUnpack_Refuses(t *testing.T) {
	p, _ := fakePair(t, Config{}, likeRC(), likeUD())
	p.connect()
	good := p.b.mem.Pack()
	noPart := bytes.Clone(good[:keyHeader])
	noPart[3] = 0
	badPart := append(bytes.Clone(good[:keyHeader]), 0, 3, 1, 2, 3)
	for _, b := range [][]byte{nil, []byte("garbage"), good[:len(good)-1], noPart, badPart} {
		_, err := p.a.ep.Unpack(b)
		assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
	}
	k, err := p.a.ep.Unpack(good)
	require.NoError(t, err)
	k.Close()
	k.Close()
	_, err = p.a.ep.Put([]byte{1}, p.b.mem.Addr(), k, nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidRKey, "a closed key")
}

func TestMem_Refuses(t *testing.T) {
	p, f := fakePair(t, Config{}, likeSM())
	_, err := p.a.ctx.MemMap(nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = p.a.ctx.MemAlloc(0)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	f.noReg = true
	_, err = p.a.ctx.MemMap(make([]byte, 8))
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
}

func TestRegions_Execute(t *testing.T) {
	p, _ := fakePair(t, Config{}, likeSM())
	ctx, m := p.b.ctx, p.b.mem
	ro, err := ctx.MemAllocAccess(64, uct.AccessLocalWrite|uct.AccessRemoteWrite)
	require.NoError(t, err)
	defer func() { assert.NoError(t, ro.Close()) }()
	good := remoteAtomic{op: uct.AtomicAdd, size: 8, region: m.id, raddr: m.addr + 8, value: 5}
	for _, tc := range []struct {
		name string
		edit func(a *remoteAtomic)
		want ucs.Status
	}{
		{"good", func(a *remoteAtomic) {}, ucs.StatusOK},
		{"last word", func(a *remoteAtomic) { a.raddr = m.addr + memLen - 8 }, ucs.StatusOK},
		{"no such region", func(a *remoteAtomic) { a.region++ }, ucs.StatusRemoteAccess},
		{"without the right", func(a *remoteAtomic) { a.region, a.raddr = ro.id, ro.addr }, ucs.StatusRemoteAccess},
		{"before", func(a *remoteAtomic) { a.raddr = m.addr - 8 }, ucs.StatusRemoteAccess},
		{"past the end", func(a *remoteAtomic) { a.raddr = m.addr + memLen - 4 }, ucs.StatusRemoteAccess},
		{"far past the end", func(a *remoteAtomic) { a.raddr = ^uint64(0) }, ucs.StatusRemoteAccess},
		{"unaligned", func(a *remoteAtomic) { a.raddr++ }, ucs.StatusRemoteInvalid},
		{"a wrong size", func(a *remoteAtomic) { a.size = 2 }, ucs.StatusRemoteInvalid},
		{"a wrong op", func(a *remoteAtomic) { a.op = 99 }, ucs.StatusRemoteInvalid},
	} {
		a := good
		tc.edit(&a)
		_, st := ctx.regions.execute(&a)
		assert.Equal(t, tc.want, st, tc.name)
	}
	old, _ := ctx.regions.execute(&good)
	assert.Equal(t, uint64(5), old, "only the good one took effect")
}

func FuzzUnpackKey(f *testing.F) {
	f.Add(sampleKey().append(nil))
	k := sampleKey()
	k.parts = nil
	f.Add(k.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := unpackKey(b)
		if err != nil {
			assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
			return
		}
		assert.Equal(t, b, k.append(nil), "one key, one form")
	})
}
