package ib_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
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

func TestPool(t *testing.T) {
	md := openMD(t)
	p, err := md.NewPool(3, 100)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for want := range uint32(3) {
		i, ok := p.Get()
		require.True(t, ok)
		assert.Equal(t, want, i)
		assert.Len(t, p.Bytes(i), 100)
		assert.Equal(t, 100, cap(p.Bytes(i)), "does not extend into the next buffer")
		p.Bytes(i)[99] = byte(i)
		assert.Zero(t, p.SGE(i, 0, 100).Addr%64)
		assert.Equal(t, p.SGE(i, 0, 1).Addr+9, p.SGE(i, 9, 1).Addr)
	}
	_, ok := p.Get()
	assert.False(t, ok)
	p.Put(1)
	assert.Equal(t, 1, p.Free())
	assert.Equal(t, byte(1), p.Bytes(1)[99])
	if invariants.Enabled {
		assert.PanicsWithValue(t, "broken invariant: buffer 1 is not in use", func() { p.Put(1) })
	}
}

func TestWake(t *testing.T) {
	md := openMD(t)
	var word atomic.Uint32
	word.Store(5)
	var undo cleanup.Stack
	w, err := md.OpenWake(&word, undo.Add)
	require.NoError(t, err)
	cq, err := md.Context().CreateCQ(verbs.CQInitAttr{Depth: 4, Channel: w.Channel()})
	require.NoError(t, err)
	require.NoError(t, w.Arm(cq, 0))
	assert.False(t, testenv.Readable(t, w.FD(), 0))

	done := make(chan struct{})
	go func() { w.Raise(); w.Raise(); close(done) }()
	<-done
	assert.True(t, w.Pending())
	assert.True(t, testenv.Readable(t, w.FD(), 0))
	assert.Equal(t, uct.ErrBusy, w.Arm(cq, 0))
	w.Lower()
	w.Lower()
	assert.False(t, w.Pending())
	assert.False(t, testenv.Readable(t, w.FD(), 0))
	assert.EqualValues(t, 5, word.Load(), "the other bits belong to the iface")

	require.NoError(t, w.Arm(cq, time.Microsecond))
	assert.True(t, testenv.Readable(t, w.FD(), testenv.Watchdog), "the timer")
	require.NoError(t, w.Arm(cq, 0))
	assert.False(t, testenv.Readable(t, w.FD(), 0), "no timer")
	require.NoError(t, errors.Join(cq.Close(), undo.Run()))
}

// switchedPort is a provider with a port whose state the test sets.
type switchedPort struct {
	verbs.Provider
	state *verbs.PortState
}

func (s switchedPort) QueryPort(num uint8) (verbs.PortAttr, error) {
	a, err := s.Provider.QueryPort(num)
	a.State = *s.state
	return a, err
}

// TestPort_FailureCause: the error of a request that failed on a port that is down names the state
// of the port.
func TestPort_FailureCause(t *testing.T) {
	state := verbs.PortActive
	md, err := ib.New(func() ([]*verbs.Device, error) {
		return []*verbs.Device{verbs.NewDevice("switched0", func() (verbs.Provider, error) {
			list, err := loop()
			require.NoError(t, err)
			ctx, err := list[0].Open()
			require.NoError(t, err)
			return switchedPort{ctx.Provider(), &state}, nil
		})}, nil
	}, rc.Transport(rc.Config{})).OpenMD("switched0")
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	p, err := md.(*ib.MD).OpenPort(1, ib.PathConfig{})
	require.NoError(t, err)
	cause := verbs.WCRetryExcErr.Err()
	assert.Equal(t, cause, p.FailureCause(cause))
	state = verbs.PortDown
	assert.ErrorIs(t, p.FailureCause(cause), cause)
	assert.ErrorContains(t, p.FailureCause(cause), "port is down")
	for state = range 7 {
		_, err = md.(*ib.MD).OpenPort(1, ib.PathConfig{})
		want := []string{"NOP", "down", "INIT", "ARMED", "", "ACTIVE_DEFER", "in state 6"}[state]
		if want == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, "port is "+want)
		assert.ErrorContains(t, p.FailureCause(cause), "port is "+want)
	}
}
