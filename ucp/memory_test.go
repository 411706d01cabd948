package ucp_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

func TestUnpack_Errors(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	good := p.B.Mem.Pack()
	const header = 28 // bytes before the parts
	noPart := bytes.Clone(good[:header])
	noPart[3] = 0
	badPart := append(bytes.Clone(good[:header]), 0, 3, 1, 2, 3)
	for _, b := range [][]byte{nil, []byte("garbage"), good[:len(good)-1], noPart, badPart} {
		_, err := p.A.EP.Unpack(b)
		assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
	}
	k, err := p.A.EP.Unpack(good)
	require.NoError(t, err)
	k.Close()
	k.Close()
	_, err = p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), k, nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidRKey, "a closed key")
}

func TestMem_Errors(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	_, err := p.A.Ctx.MemMap(nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = p.A.Ctx.MemAlloc(0)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	f.NoReg = true
	_, err = p.A.Ctx.MemMap(make([]byte, 8))
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
}

// TestMemClose_InUse: memory that a peer accesses while it closes stays registered until the access has ended. No new
// access can begin.
func TestMemClose_InUse(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	ctx := p.A.Ctx
	before := ctx.Memory().Len()
	m, err := ctx.MemMap(make([]byte, 64))
	require.NoError(t, err)
	f.Inside = []int{42}
	for range 2 {
		var inUse *ucs.InUseError
		require.ErrorAs(t, m.Close(), &inUse)
		assert.Equal(t, []int{42}, inUse.PIDs)
		assert.Equal(t, before+1, ctx.Memory().Len())
		_, st := ctx.Memory().Execute(&wire.Request{Op: uct.AtomicAdd, Size: 8, Region: regionOf(t, m), Addr: m.Addr()})
		assert.Equal(t, ucs.StatusRemoteAccess, st)
	}
	f.Inside = nil
	for range 2 {
		require.NoError(t, m.Close())
		assert.Equal(t, before, ctx.Memory().Len())
	}
}

// regionOf returns the id by which peers address memory.
func regionOf(t *testing.T, m *ucp.Mem) uint64 {
	k, err := wire.UnpackKey(m.Pack())
	require.NoError(t, err)
	return k.Region
}

func TestRegions_Execute(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	ctx, m := p.B.Ctx, p.B.Mem
	ro, err := ctx.MemAllocAccess(64, uct.AccessLocalWrite|uct.AccessRemoteWrite)
	require.NoError(t, err)
	defer func() { assert.NoError(t, ro.Close()) }()
	good := wire.Request{Op: uct.AtomicAdd, Size: 8, Region: regionOf(t, m), Addr: m.Addr() + 8, Value: 5}
	for _, tc := range []struct {
		name string
		edit func(a *wire.Request)
		want ucs.Status
	}{
		{"good", func(a *wire.Request) {}, ucs.StatusOK},
		{"last word", func(a *wire.Request) { a.Addr = m.Addr() + tlsets.MemLen - 8 }, ucs.StatusOK},
		{"no such region", func(a *wire.Request) { a.Region++ }, ucs.StatusRemoteAccess},
		{"without the right", func(a *wire.Request) { a.Region, a.Addr = regionOf(t, ro), ro.Addr() }, ucs.StatusRemoteAccess},
		{"before", func(a *wire.Request) { a.Addr = m.Addr() - 8 }, ucs.StatusRemoteAccess},
		{"past the end", func(a *wire.Request) { a.Addr = m.Addr() + tlsets.MemLen }, ucs.StatusRemoteAccess},
		{"far past the end", func(a *wire.Request) { a.Addr = ^uint64(7) }, ucs.StatusRemoteAccess},
		{"unaligned", func(a *wire.Request) { a.Addr++ }, ucs.StatusRemoteInvalid},
		{"a wrong size", func(a *wire.Request) { a.Size = 2 }, ucs.StatusRemoteInvalid},
		{"a wrong op", func(a *wire.Request) { a.Op = 99 }, ucs.StatusRemoteInvalid},
	} {
		a := good
		tc.edit(&a)
		_, st := ctx.Memory().Execute(&a)
		assert.Equal(t, tc.want, st, tc.name)
	}
	old, _ := ctx.Memory().Execute(&good)
	assert.Equal(t, uint64(5), old, "only the valid one took effect")
}
