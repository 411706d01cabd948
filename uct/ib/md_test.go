package ib_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func loop() ([]*verbs.Device, error) {
	d, err := softhca.NewDevice(softhca.Config{Name: "loop0", Fabric: softhca.FabricLoop})
	return []*verbs.Device{d}, err
}

func openMD(t *testing.T) *ib.MD {
	t.Helper()
	md, err := ib.New(loop, rc.Transport(rc.Config{})).OpenMD("loop0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*ib.MD)
}

func TestComponent(t *testing.T) {
	c := ib.New(loop, rc.Transport(rc.Config{}))
	assert.Equal(t, "ib", c.Name())
	list, err := c.MDs()
	require.NoError(t, err)
	assert.Equal(t, []uct.MDResource{{Name: "loop0"}}, list)
	_, err = c.OpenMD("mlx5_0")
	assert.ErrorIs(t, err, uct.ErrInvalidParam)

	_, err = ib.Config{Endpoints: 9}.New(loop).OpenMD("loop0")
	assert.ErrorIs(t, err, uct.ErrInvalidParam)

	broken := ib.New(func() ([]*verbs.Device, error) { return nil, unix.EACCES })
	_, err = broken.MDs()
	assert.ErrorIs(t, err, unix.EACCES)
	_, err = broken.OpenMD("x")
	assert.ErrorIs(t, err, unix.EACCES)
}

func TestMD_CloseLeaksNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	md, err := ib.New(loop, rc.Transport(rc.Config{})).OpenMD("loop0")
	require.NoError(t, err)
	iface, err := md.OpenIface(uct.IfaceParams{Transport: "rc", Device: "loop0:1"})
	require.NoError(t, err)
	mem, err := md.Ext().Alloc.Alloc(100, uct.AccessAll)
	require.NoError(t, err)
	assert.ErrorIs(t, md.Close(), uct.ErrBusy)
	require.NoError(t, iface.Close())
	require.NoError(t, iface.Close())
	assert.ErrorIs(t, md.Close(), uct.ErrBusy)
	require.NoError(t, mem.Close())
	require.NoError(t, mem.Close())
	require.NoError(t, md.Close())
	require.NoError(t, md.Close())
	_, err = md.OpenIface(uct.IfaceParams{Transport: "rc", Device: "loop0:1"})
	assert.ErrorIs(t, err, uct.ErrClosed)
}

func TestMD_Resources(t *testing.T) {
	md := openMD(t)
	list, err := md.Resources()
	require.NoError(t, err)
	assert.Equal(t, []uct.Resource{{Transport: "rc", Device: "loop0:1", Kind: uct.DeviceNet}}, list)
	for _, p := range []uct.IfaceParams{
		{Transport: "rc", Device: "loop0"}, {Transport: "rc", Device: "loop0:2"},
		{Transport: "rc", Device: "loop0:0"}, {Transport: "rc", Device: "other:1"},
		{Transport: "ud", Device: "loop0:1"},
	} {
		_, err := md.OpenIface(p)
		assert.ErrorIs(t, err, uct.ErrInvalidParam, "%+v", p)
	}
}

func TestMem(t *testing.T) {
	md := openMD(t)
	heap := make([]byte, 1000)
	reg, err := md.Reg(heap, uct.AccessRemoteRead)
	require.NoError(t, err)
	alloc, err := md.Alloc(1000, uct.AccessAll)
	require.NoError(t, err)
	for _, m := range []uct.Mem{reg, alloc} {
		assert.Len(t, m.Bytes(), 1000)
		key, err := m.PackRKey(nil)
		require.NoError(t, err)
		assert.Len(t, key, md.Attr().RKeyLen)
		_, err = md.UnpackRKey(key)
		require.NoError(t, err)
		_, err = md.UnpackRKey(key[1:])
		assert.ErrorIs(t, err, uct.ErrInvalidRKey)

		whole, ok := m.(*ib.Mem).SGE(m.Bytes())
		assert.True(t, ok)
		assert.Equal(t, m.Addr(), whole.Addr)
		part, ok := m.(*ib.Mem).SGE(m.Bytes()[990:])
		assert.True(t, ok)
		assert.Equal(t, verbs.SGE{Addr: m.Addr() + 990, Length: 10, LKey: whole.LKey}, part)
		_, ok = m.(*ib.Mem).SGE(make([]byte, 10))
		assert.False(t, ok, "other memory")
	}
	_, ok := reg.(*ib.Mem).SGE(alloc.Bytes())
	assert.False(t, ok)
	require.NoError(t, reg.Close())
	_, err = reg.PackRKey(nil)
	assert.ErrorIs(t, err, uct.ErrClosed)
	require.NoError(t, alloc.Close())

	for _, f := range []func() (uct.Mem, error){
		func() (uct.Mem, error) { return md.Reg(nil, uct.AccessAll) },
		func() (uct.Mem, error) { return md.Reg(heap, 0x80) },
		func() (uct.Mem, error) { return md.Alloc(0, uct.AccessAll) },
	} {
		_, err := f()
		assert.ErrorIs(t, err, uct.ErrInvalidParam)
	}
}

func TestSGEs(t *testing.T) {
	md, other := openMD(t), openMD(t)
	mem, err := md.Alloc(100, uct.AccessAll)
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	foreign, err := other.Alloc(100, uct.AccessAll)
	require.NoError(t, err)
	defer func() { require.NoError(t, foreign.Close()) }()
	b := mem.Bytes()
	dst := make([]verbs.SGE, 0, 4)
	sges, ok := md.SGEs(dst, []uct.IOV{{Buf: b[:10], Mem: mem}, {}, {Buf: b[50:], Mem: mem}})
	assert.True(t, ok)
	assert.Len(t, sges, 2)
	for _, bad := range [][]uct.IOV{
		{{Buf: b[:1]}},
		{{Buf: b[:1], Mem: foreign}},
		{{Buf: foreign.Bytes(), Mem: foreign}},
		{{Buf: make([]byte, 4), Mem: mem}},
	} {
		_, ok := md.SGEs(dst, bad)
		assert.False(t, ok)
	}
}
